"""The command line as a user meets it: every command, every refusal, exit codes, and what is printed last."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from unbraid import cli
from unbraid.dictionaries import TopK
from unbraid.errors import UserError
from unbraid.models.profile import profile_gauge
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

TINY = """
[world]
dimensions = 8
n_features = 12
active = 2.0
[dictionary]
d_sae = 10
[training]
steps = 12
batch = 16
[mechanisms.sparsity]
weight = 0.1
[evaluation]
samples = 256
[checkpoints]
log_every = 3
every = 4
[sweep]
seed = [0, 1]
"""


def unbraid(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run the command in this process: exit code, standard output, standard error."""
    code = cli.guarded(lambda: cli.app([str(word) for word in words]))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def runs_with_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with one that is finished and reported."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    words = ["run", str(folder / "tiny.toml"), "--runs", str(folder / "runs"), "--name", "one"]
    assert cli.guarded(lambda: cli.app(words)) == 0
    return folder / "runs"


@pytest.fixture
def finished(runs_with_one: Path, tmp_path: Path) -> Run:
    """A copy of it, to read or to spoil."""
    return Run.open(shutil.copytree(runs_with_one, tmp_path / "runs") / "one")


def test_run_prints_the_run_directory_last_and_leaves_everything(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code, out, _ = unbraid(capsys, "run", config, "--runs", tmp_path / "runs", "--name", "one")
    assert code == 0
    finished = Run.open(Path(out.splitlines()[-1]))
    found = {str(path.relative_to(finished.path)) for path in finished.path.rglob("*") if path.is_file()}
    stack = {f"stacks/00/{name}" for name in ("log.jsonl", "members.json", "scores.json", "weights.safetensors")}
    assert {"config.toml", "environment.json", "scores.json", "report.html", "status.json"} | stack <= found
    assert finished.status()["state"] == "finished"
    assert not [name for name in found if name.endswith((".pkl", ".pt", ".part"))]
    assert [json.loads(line)["step"] for line in (finished.stack(0) / "log.jsonl").read_text().splitlines()] == [
        3,
        6,
        9,
        12,
    ]


@pytest.mark.usefixtures("undrawn")
def test_quiet_prints_only_the_run_directory(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = unbraid(capsys, "run", config, "--runs", tmp_path, "--name", "q", "--quiet")
    assert (code, out.strip(), err) == (0, str(tmp_path / "q"), "")


@pytest.mark.usefixtures("undrawn")
def test_overrides_change_settings_and_are_written_down(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ("training.steps=2", "dictionary.activation={kind='topk', k=3}", "sweep.seed=[7]", "title=hello")
    code, out, _ = unbraid(capsys, "run", config, *words, "--runs", tmp_path, "-q")
    kept = Run.open(Path(out.strip())).config()
    assert code == 0
    assert kept["training"]["steps"] == 2
    assert kept["dictionary"]["activation"] == TopK(k=3).to_dict()
    assert (kept["sweep"]["seed"], kept["title"]) == ([7], "hello")
    assert kept["world"]["decay"] == 0.99  # defaults are written out


def test_list_show_and_report_read_what_run_wrote(finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = ("--runs", finished.path.parent)
    assert "one" in unbraid(capsys, "list", *runs)[1]
    assert "mmcs" in unbraid(capsys, "show", "one", *runs)[1].lower()
    shown = json.loads(unbraid(capsys, "show", "one", "--json", *runs)[1])
    assert {"name", "path", "state", "config", "environment", "settings", "differences", "figures"} == set(shown)
    mmcs = shown["settings"][0]["metrics"]["mmcs"]
    assert set(mmcs) == {"value", "interval", "chance", "ceiling", "members"}
    assert all(Path(path).is_file() for path in shown["figures"].values())
    code, out, _ = unbraid(capsys, "report", finished.path, "-o", tmp_path / "page.html")
    assert code == 0
    assert Path(out.strip()).read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("undrawn")
def test_resume_of_a_finished_run_changes_nothing(finished: Run, capsys: pytest.CaptureFixture[str]):
    before = (finished.stack(0) / "weights.safetensors").read_bytes(), finished.scores()
    assert unbraid(capsys, "resume", finished.path, "-q")[0] == 0
    assert before == ((finished.stack(0) / "weights.safetensors").read_bytes(), finished.scores())


def test_configs_that_ship_are_listed_and_valid(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pretend_to_capture
):
    from unbraid.config import read_toml
    from unbraid.config.sweep import at_scale, scales_of
    from unbraid.pipeline.expand import expand
    from unbraid.studies.shipped import shipped

    monkeypatch.chdir(tmp_path)
    out = unbraid(capsys, "configs")[1]
    for name, path in shipped().items():
        assert f"\n{name} " in f"\n{out}"
        assert path.read_text().startswith("# unbraid run ")
        data = read_toml(path)
        for scale in (None, *scales_of(data, path.name)):
            chosen = at_scale(data, scale, path.name)
            pretend_to_capture(chosen)
            assert expand(chosen, path.name)
    assert "--scale small | standard | full" in out


def test_a_scale_comes_before_overrides_and_its_name_is_kept(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config.write_text(TINY + "[scales.long]\ntraining = { steps = 14, batch = 8 }\n")
    words = ("run", config, "training.batch=9", "--scale", "long", "--runs", tmp_path)
    code, out, _ = unbraid(capsys, *words)
    run = Run.open(Path(out.splitlines()[-1]))
    assert code == 0
    assert (run.config()["training"]["steps"], run.config()["training"]["batch"]) == (14, 9)
    assert run.config()["scale"] == "long"
    assert 'data-column="as run">long</td>' in (run.path / "report.html").read_text()


def test_an_unknown_scale_is_refused_with_those_there_are(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert unbraid(capsys, "run", config, "--scale", "long", "--runs", tmp_path)[0] == 2
    config.write_text(TINY + "[scales.long]\ntraining.steps = 14\n")
    code, _, err = unbraid(capsys, "run", config, "--scale", "lnog", "--runs", tmp_path)
    assert code == 2
    assert "has no scale 'lnog'; did you mean 'long'? accepted: long" in err
    assert len(err.splitlines()) == 1


REFUSED = {
    "unknown key": (["training.stepps=3"], "did you mean 'steps'"),
    "unknown table": (["wolrd.n_features=3"], "did you mean 'world'"),
    "unknown mechanism": (["mechanisms.sparsty.weight=1"], "did you mean 'sparsity'"),
    "wrong type": (["training.steps=many"], "training.steps is 'many'"),
    "fraction of a step": (["training.steps=1.5"], "training.steps is 1.5"),
    "zero size": (["dictionary.d_sae=0"], "dictionary.d_sae is 0"),
    "negative size": (["world.dimensions=-4"], "world.dimensions is -4"),
    "not a number": (["mechanisms.sparsity.weight=nan"], "finite"),
    "k larger than f": (["dictionary.activation={kind='topk', k=11}"], "1 to 10"),
    "unknown kind": (["dictionary.activation.kind=rleu"], "did you mean 'relu'"),
    "missing k": (["dictionary.activation={kind='topk'}"], "dictionary.activation.k"),
    "too active": (["world.active=500"], "accepted: active below"),
    "schedule": (["training.warmup_steps=99"], "together at most 12"),
    "empty sweep list": (["sweep.seed=[]"], "a list of at least one value"),
    "sweep of nothing": (["sweep.nothing=[1]"], "cannot be swept"),
    "sweep of an unknown path": (["sweep.'training.stps'=[1]"], "did you mean 'steps'"),
    "sweep twice": (["sweep.seed=[1, 1]"], "names a value twice"),
    "sweep of a bad value": (["sweep.'training.steps'=[0]"], "training.steps is 0"),
    "not an override": (["training.steps"], "PATH=VALUE"),
    "bad path": (["training..steps=3"], "dotted path"),
    "larger than memory": (["dictionary.d_sae=16000000", "world.dimensions=1000000"], "GiB"),
    "a name with a slash": (["--name", "a/b"], "no slashes"),
    "a name too long": (["--name", "n" * 300], "up to 60 letters"),
    "a name that is not text": (["--name", "\udc80"], "no slashes"),
    "an override that is not text": (["title=\udc80"], "is not an override"),
    "an override of what is swept": (["seed=7"], "'seed' is swept"),
    "a comment": (["#training.steps=5"], "dotted path"),
    "an enormous number": (["training.steps=" + "9" * 400], "less than or equal to"),
    "a truth larger than memory": (["world.n_features=10000000", "dictionary.d_sae=20000"], "GiB"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_configuration_gets_one_sentence(
    case: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words, expected = REFUSED[case]
    code, out, err = unbraid(capsys, "run", config, *words, "--runs", tmp_path / "runs")
    assert (code, out) == (2, "")
    assert expected in err
    assert err.startswith("unbraid: ")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"[world\n", "is not valid TOML"), (b"\xff\xfe", "UTF-8"), (b"sweep = 3\n", "a table of dotted paths")],
)
def test_unreadable_toml_gets_one_sentence(
    content: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "bad.toml").write_bytes(content)
    code, _, err = unbraid(capsys, "run", tmp_path / "bad.toml")
    assert code == 2
    assert expected in err


def test_files_and_runs_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "did you mean 'quickstart'" in unbraid(capsys, "run", "quickstrt.toml")[2]
    assert "a TOML file" in unbraid(capsys, "run", tmp_path)[2]
    for command in ("resume", "show", "report"):
        code, _, err = unbraid(capsys, command, "nothing", "--runs", tmp_path)
        assert (code, "there is no run 'nothing'" in err) == (2, True)
        (tmp_path / "empty").mkdir(exist_ok=True)
        code, _, err = unbraid(capsys, command, tmp_path / "empty")
        assert (code, "is not a run directory" in err) == (2, True)
    assert unbraid(capsys, "list", "--runs", tmp_path / "none")[0] == 0


def test_a_taken_name_is_refused(finished: Run, config: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = unbraid(capsys, "run", config, "--runs", finished.path.parent, "--name", "one")
    assert (code, "exists already" in err) == (2, True)


def test_a_folder_that_cannot_be_written_is_refused(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    code, _, err = unbraid(capsys, "run", config, "--runs", tmp_path / "file")
    assert (code, "cannot write" in err, len(err.splitlines())) == (2, True, 1)


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_another_process_writes_is_refused(finished: Run, capsys: pytest.CaptureFixture[str]):
    lock = f"lock = FileLock({str(finished.path / 'lock')!r}); lock.acquire()"
    script = f"import time; from filelock import FileLock; {lock}; print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        code, _, err = unbraid(capsys, "resume", finished.path)
        other.kill()
    assert (code, "being written by another process" in err) == (2, True)
    assert unbraid(capsys, "resume", finished.path, "-q")[0] == 0  # the lock went with its process


def test_a_loss_that_is_not_finite_names_step_term_and_checkpoint(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rates = "sweep.'training.learning_rate'=[0.001, 1e30]"
    words = (rates, "checkpoints.every=1", "training.steps=50", "dictionary.pre_bias=true")
    code, _, err = unbraid(capsys, "run", config, *words, "--runs", tmp_path, "--name", "hot", "-q")
    assert code == 1
    assert "loss term 'reconstruction'" in err
    assert "1e+30" in err
    kept = Run.open(tmp_path / "hot")
    named = err.split("the last good checkpoint is ")[1].split(";")[0]
    assert Path(f"{named}.safetensors").is_file()
    assert all(np.isfinite(array).all() for array in read_arrays(Path(f"{named}.safetensors")).values())
    assert kept.status()["state"] == "failed"


def launch(*words: object, **options: object) -> "subprocess.Popen[str]":
    """The command in a process of its own."""
    command = [sys.executable, "-c", "from unbraid.cli import main; main()", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # pyright: ignore[reportCallIssue, reportArgumentType, reportReturnType]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_resume(number: signal.Signals, config: Path, tmp_path: Path):
    process = launch(
        "run", config, "training.steps=100000", "checkpoints.log_every=1", "--runs", tmp_path, "--name", "long"
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("cache/*/checkpoints/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"unbraid resume {tmp_path / 'long'}" in err
    assert "Traceback" not in err
    run = Run.open(tmp_path / "long")
    assert run.status()["state"] == "stopped"
    newest = max(tmp_path.glob("cache/*/checkpoints/*.json"))
    assert f"at step {read_json(newest)['step']}" in err
    assert read_json(newest)["facts"]["log"]["bytes"] == (newest.parents[1] / "log.jsonl").stat().st_size


def test_no_space_left_is_one_sentence_and_nothing_is_lost(config: Path, tmp_path: Path):
    """A limit on file size stands for a full disk: the write fails inside the system, as it would there."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    big = ("dictionary.d_sae=64", "training.steps=40")
    process = launch("run", config, *big, "--runs", tmp_path, "--name", "full", preexec_fn=limit)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "cannot write" in err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.part"))
    process = launch("resume", tmp_path / "full", "-q")
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_help_imports_nothing_heavy():
    script = (
        "import sys; from unbraid import cli\ntry: cli.app(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"torch", "numpy", "scipy", "matplotlib", "pydantic", "sklearn", "jaxtyping"}
    assert "unbraid.cli" in loaded


@pytest.mark.usefixtures("undrawn")
def test_a_swept_table_of_another_kind_replaces_the_one_in_the_base(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    kinds = "sweep.'dictionary.activation'=[{kind='topk', k=3}, {kind='relu'}]"
    assert unbraid(capsys, "run", config, kinds, "--runs", tmp_path, "--name", "both", "-q")[0] == 0
    settings = Run.open(tmp_path / "both").scores()["settings"]
    assert [setting["label"] for setting in settings] == ["activation topk 3", "activation relu"]


def test_a_wrong_path_never_runs_a_file_that_ships(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = unbraid(capsys, "run", tmp_path / "quickstart.toml", "--runs", tmp_path)
    assert (code, "there is no such file" in err) == (2, True)


def test_weights_that_are_not_finite_are_never_saved(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ("training.learning_rate=1e300", "checkpoints.every=1", "training.steps=1")
    code, _, err = unbraid(capsys, "run", config, *words, "--runs", tmp_path, "--name", "nan", "-q")
    assert (code, "the weights '" in err, "no checkpoint was saved yet" in err) == (1, True, True), err
    assert Run.open(tmp_path / "nan").status()["state"] == "failed"


def test_a_signal_while_scoring_stops_at_once(config: Path, tmp_path: Path):
    words = ("evaluation.samples=1000000000", "--runs", tmp_path, "--name", "scored")
    process = launch("run", config, *words)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("cache/*/checksums.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 143
    assert "unbraid resume" in err
    assert Run.open(tmp_path / "scored").status()["state"] == "stopped"


def test_damaged_cards_of_a_run_get_one_sentence(finished: Run, capsys: pytest.CaptureFixture[str]):
    for name in ("run.json", "status.json", "scores.json", "environment.json"):
        before = (finished.path / name).read_bytes()
        (finished.path / name).write_text("[1]")
        code, _, err = unbraid(capsys, "resume" if name == "environment.json" else "show", finished.path)
        assert (code, f"{name} is damaged" in err) == (2, True), err  # the folder, too, has a name with that word
        assert unbraid(capsys, "list", "--runs", finished.path.parent)[0] == 0
        (finished.path / name).write_bytes(before)


@pytest.mark.usefixtures("undrawn")
def test_a_log_that_was_lost_is_made_anew(
    finished: Run, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def no_room(path: Path, _arrays: object) -> None:
        raise UserError(f"cannot write {path}")

    lost = tmp_path / "others"
    with monkeypatch.context() as patched:
        patched.setattr("unbraid.pipeline.training.write_pieces", no_room)
        assert unbraid(capsys, "run", config, "--runs", lost, "--name", "lost", "-q")[0] == 2
    (log,) = lost.glob("cache/*/log.jsonl")
    log.unlink()
    code, _, err = unbraid(capsys, "resume", lost / "lost", "-q")
    assert code == 0
    assert f"{log} is not what it was at the checkpoint of step 12" in err
    assert "goes on from step 0" in err
    for name in ("log.jsonl", "weights.safetensors"):
        assert (Run(lost / "lost").stack(0) / name).read_bytes() == (finished.stack(0) / name).read_bytes()


def test_a_report_about_several_runs_leaves_their_own_reports_alone(
    finished: Run, config: Path, capsys: pytest.CaptureFixture[str]
):
    runs = finished.path.parent
    assert unbraid(capsys, "run", config, "--runs", runs, "--name", "two", "-q")[0] == 0
    before = (finished.path / "report.html").read_bytes()
    code, out, _ = unbraid(capsys, "report", "one", "two", "--runs", runs)
    assert (code, Path(out.strip())) == (0, runs / "report.html")
    assert (finished.path / "report.html").read_bytes() == before


def test_a_trained_stack_can_be_loaded_and_scores_as_it_did(finished: Run):
    from unbraid import Superposition, load_stack, score

    stack = load_stack(finished.path)
    world = Superposition(dimensions=8, n_features=12, active=2.0)
    found = score(stack, world, samples=256).values["mmcs"].tolist()
    assert found == pytest.approx(finished.scores()["settings"][0]["metrics"]["mmcs"]["members"])


@pytest.fixture(scope="module")
def profiles():
    """A process a model measures its memory: half a minute, so once."""
    return profile_gauge(tokens=8, batch=2, repeats=1)


@pytest.fixture
def profiled(profiles, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr("unbraid.models.profile.profile_gauge", lambda *words: asked.append(words) or profiles)
    yield
    assert asked == [(8, 2, 1)]


def test_profile_prints_a_row_a_model_with_units(
    profiled, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "160")
    code, out, err = unbraid(capsys, "profile", "gauge", "--tokens", 8, "--batch", 2, "--repeats", 1)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "One training step, one layer, 2 windows of 8 tokens, 100 tokens to choose from."
    assert {"width", "parameters", "step, ms", "memory, MiB"} <= {
        words.strip() for words in lines[1].split("  ") if words
    }
    assert [line.split()[0] for line in lines[2:-1]] == ["20"] * 3 + ["64"] * 3 + ["128"] * 3
    assert lines[2].count("1.0×") == 2  # the plain one beside itself


def test_a_profile_as_json_has_stable_keys(profiled, capsys: pytest.CaptureFixture[str]):
    code, out, _ = unbraid(capsys, "profile", "gauge", "--tokens", 8, "--batch", 2, "--repeats", 1, "--json")
    found = json.loads(out)
    assert (code, found["tokens"], found["batch"]) == (0, 8, 2)
    keys = {"model", "width", "heads", "parameters", "milliseconds", "mebibytes"}
    assert all(set(one) == keys and one["milliseconds"] > 0 for one in found["profiles"])
    assert [one["width"] for one in found["profiles"] if one["model"] == "plain"] == [20, 64, 128]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["plain"], "there is no profile of 'plain'; accepted: gauge"),
        (["gauge", "--tokens", "1"], "Invalid value for '--tokens'"),
        (["gauge", "--batch", "many"], "Invalid value for '--batch'"),
        ([], "WHAT"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = unbraid(capsys, "profile", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1
