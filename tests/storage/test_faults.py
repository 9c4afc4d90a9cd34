"""The faults of storage that an audit found, each as the least that shows it."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.storage.scenarios import CONFIGS, command, copy, results, unbraid
from unbraid.config import read_toml
from unbraid.config.sweep import combinations
from unbraid.errors import UserError
from unbraid.pipeline.dictionary_stages import TrainStack
from unbraid.pipeline.expand import expand
from unbraid.storage.cache import Cache
from unbraid.storage.checkpoints import load_latest
from unbraid.storage.runs import Run

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def made(scenarios, tmp_path):
    """A copy of a scenario by its name."""
    return lambda name: copy(scenarios[name], tmp_path)


def change_a_digit(path: Path) -> None:
    """The first digit that is a value: the file stays what it is, JSON, TOML or lines."""
    content = path.read_text()
    place = next(i for i, letter in enumerate(content) if letter.isdigit() and content[i - 1] in " [")
    path.write_text(f"{content[:place]}{(int(content[place]) + 1) % 10}{content[place + 1 :]}")


def flip_last_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def litter(folder: Path) -> list[str]:
    """What no command may leave once everything is finished."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return sorted(name for name in names if name.endswith((".part", "lock")) or "checkpoints" in name.split("/"))


def refused(ended, path: str) -> bool:
    return ended.code == 2 and ended.err.count("\n") == 1 and path in ended.err


@pytest.mark.parametrize("kept", [0, 0.5])
def test_r1_a_finished_run_with_a_configuration_cut_short_is_refused(made, kept):
    folder = made("dictionaries")
    path = folder / "runs/run/config.toml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: int(kept * len(lines))]))
    scores = (folder / "runs/run/scores.json").read_bytes()
    for each in ("resume", "show", "report"):
        assert refused(command(each, folder), "runs/run/config.toml")
    assert (folder / "runs/run/scores.json").read_bytes() == scores


def test_r1_a_changed_configuration_of_a_stopped_run_is_refused(made):
    folder = made("stopped-dictionaries")
    path = folder / "runs/run/config.toml"
    path.write_text(path.read_text().replace("learning_rate = 0.01", "learning_rate = 0.02"))
    ended = command("resume", folder)
    assert refused(ended, "runs/run/config.toml")
    assert "start another run: `unbraid run runs/run/config.toml`" in ended.err


@pytest.mark.parametrize("kind", ["evaluate-stack", "train-stack", "capture", "probe", "evaluate-models"])
@pytest.mark.parametrize("damage", ["digit or bit", "missing", "checksums"])
def test_r2_a_damaged_cached_stage_is_set_aside_and_made_again(made, scenarios, kind, damage):
    folder = made("pipeline")
    [stage, *_] = sorted((folder / "runs/cache").glob(f"{kind}-*"))
    path = max(
        (p for p in stage.rglob("*") if p.is_file() and p.name != "checksums.json"), key=lambda p: p.stat().st_size
    )
    if damage == "digit or bit":
        change_a_digit(path) if path.suffix == ".json" else flip_last_bit(path)
    else:
        (path if damage == "missing" else stage / "checksums.json").unlink()
    for later in (folder / "runs/cache").glob("evaluate-stack-*"):  # so that whatever it is made from is asked for
        if kind != "evaluate-stack":
            shutil.rmtree(later)
    ended = command("run again", folder)
    assert ended.code == 0, ended.err
    assert stage.name in ended.err
    assert "made again" in ended.err or "captured again" in ended.err
    assert results(folder / "runs/again") == results(scenarios["pipeline"].folder / "runs/run")
    aside = [path for path in (folder / "runs/cache").iterdir() if path.name.startswith("damaged-")]
    assert len(aside) == (damage != "checksums")


@pytest.mark.parametrize("name", ["weights", "normalization"])
def test_r3_a_flipped_bit_in_weights_or_normalization_is_refused_by_whoever_loads_them(made, name):
    folder = made("activations")
    path = f"runs/run/stacks/00/{name}.safetensors"
    flip_last_bit(folder / path)
    assert refused(command("load_stack", folder), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, _, err = unbraid("evaluate", "run", "model", "config.toml", "--site", "x", "-q")
    assert (code, err.count("\n")) == (2, 1)
    assert path in err


def test_r4_a_checkpoint_of_another_learning_rate_or_world_is_not_gone_on_from(made):
    """Each has a stage of its own; and put into the other's folder it is passed over."""
    folder = made("stopped-dictionaries")
    [stopped] = (folder / "runs/cache").glob("train-stack-*")
    config = read_toml(folder / "config.toml")
    keys = set()
    for table, setting, value in (("training", "learning_rate", 0.02), ("world", "seed", 1)):
        other = {**config, table: {**config[table], setting: value}}
        plan = expand(other, "here")
        train, _ = plan.first.stages(plan.stacks[0])
        assert isinstance(train, TrainStack)
        keys.add(train.key)
        found, passed_over = load_latest(stopped / "checkpoints", train.key)
        assert found is None
        assert all("is of another stage" in sentence for sentence in passed_over)
        assert len(passed_over) == 2
    assert len(keys | {stopped.name}) == 3
    [other] = keys - {train.key}
    shutil.copytree(stopped / "checkpoints", folder / "runs/cache" / other / "checkpoints")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, _, err = unbraid("run", "config.toml", "training.learning_rate=0.02", "--name", "other", "-q")
        assert (code, err.count("is of another stage")) == (0, 2)
        assert "goes on from step 0" in err
        shutil.rmtree("runs/cache")
        assert unbraid("run", "config.toml", "training.learning_rate=0.02", "--name", "alone", "-q")[0] == 0
        assert results(Path("runs/other")) == results(Path("runs/alone"))


@pytest.mark.parametrize("name", ["members.json", "scores.json", "training.json", "log.jsonl"])
def test_r4_damaged_members_scores_and_logs_of_a_stack_are_refused(made, name):
    folder = made("dictionaries")
    path = f"runs/run/stacks/00/{name}"
    change_a_digit(folder / path)
    damaged = (folder / path).read_bytes()
    assert refused(command("resume", folder), path)
    assert (folder / path).read_bytes() == damaged


def test_r4_a_damaged_file_of_tracking_is_noticed(made, scenarios):
    folder = made("stopped-dictionaries")
    [tracked, *_] = sorted((folder / "runs/cache").glob("train-stack-*/tracking/*[0-9].safetensors"))
    flip_last_bit(tracked)
    ended = command("resume", folder)
    assert ended.code == 0
    assert f"{tracked.name} is not what it was at the checkpoint" in ended.err
    assert results(folder / "runs/run") == results(scenarios["dictionaries"].folder / "runs/run")


@pytest.mark.parametrize("number", range(20))
def test_r4_a_damaged_ledger_is_refused_and_left_as_it_is(made, number):
    folder, dice = made("claims"), random.Random(number)
    path = folder / "ledger.json"
    content = path.read_bytes()
    place = dice.randrange(len(content))
    path.write_bytes(content[:place] + bytes([content[place] ^ 1 << dice.randrange(8)]) + content[place + 1 :])
    damaged = path.read_bytes()
    assert refused(command("claims --ledger", folder), "ledger.json")
    assert path.read_bytes() == damaged


def test_r5_a_sweep_that_is_too_large_is_refused_before_it_is_expanded():
    sweep = {"seed": list(range(10_000)), "world.seed": list(range(10_000))}
    with pytest.raises(UserError, match="100,000,000"):
        combinations({"sweep": sweep}, "here", ("seed", "world"), (), {})


@pytest.mark.parametrize("kind", CONFIGS)
def test_r6_a_finished_run_and_its_resume_leave_no_litter(made, kind):
    folder = made(kind)
    if kind != "claims":
        assert command("resume", folder).code == 0
        assert command("run again", folder).code == 0
        assert command("report", folder).code == 0
    assert litter(folder) == []


@pytest.mark.parametrize("kind", ["dictionaries", "models", "language_models", "pipeline"])
def test_r6_what_a_kill_left_is_gone_after_the_resume(made, scenarios, kind):
    folder = made(f"stopped-{kind}")
    stage = max((folder / "runs/cache").iterdir(), key=lambda path: (path / "checkpoints").is_dir())
    for place in (stage, stage / "checkpoints", folder / "runs/run", folder / "runs/run/stacks/00"):
        place.mkdir(parents=True, exist_ok=True)
        (place / ".weights.safetensors.99999999.part").write_bytes(b"half")
    (folder / f"runs/cache/.{stage.name}.lock").touch()
    (folder / "runs/run/lock").touch()
    assert command("resume", folder).code == 0
    assert litter(folder) == []
    assert results(folder / "runs/run") == results(scenarios[kind].folder / "runs/run")


def test_r6_a_run_directory_that_was_never_born_is_gone_when_the_next_is_made(made):
    folder = made("dictionaries")
    ours = folder / f"runs/.x.{os.getpid()}.part"
    for unborn in (folder / "runs/.run.99999999.part", ours):
        unborn.mkdir()
        (unborn / "config.toml").touch()
    assert command("run again", folder).code == 0
    assert litter(folder) == [f"runs/{ours.name}"], "that of a process that is alive stays"


@pytest.mark.parametrize("name", ["stacks/00/log.jsonl", "stacks/00/members.json", "scores.json", "status.json"])
@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"settings": 3}'])
def test_r7_whatever_a_file_holds_nothing_is_an_error_of_ours(made, name, content):
    folder = made("models")
    (folder / "runs/run" / name).write_bytes(content)
    for each in ("show", "show --json", "resume", "report"):
        assert refused(command(each, folder), f"runs/run/{name}")
    assert "damaged" in command("list", folder).out


@pytest.mark.parametrize(
    "content", [b"[]", b'{"claims": [3]}', b'{"claims": [{"id": 3}], "scale": "small", "sha256": ""}']
)
def test_r7_damaged_entries_of_a_ledger_are_no_error_of_ours(made, content):
    folder = made("claims")
    (folder / "ledger.json").write_bytes(content)
    assert refused(command("claims --ledger", folder), "ledger.json")


def test_damage_to_a_run_leaves_the_cache_and_other_runs_whole_and_the_reverse(made):
    """No file belongs to two runs."""
    folder = made("dictionaries")
    assert command("run again", folder).code == 0
    files = {}
    for path in (p for p in (folder / "runs").rglob("*") if p.is_file()):
        files.setdefault(path.stat().st_ino, []).append(path)
    assert all(len(paths) == 1 for paths in files.values())
    flip_last_bit(folder / "runs/run/stacks/00/weights.safetensors")
    Run(folder / "runs/again").verify()
    said: list[str] = []
    cache = Cache(folder / "runs/cache")
    keys = [path.name for path in cache.path.iterdir()]
    assert all(cache.has(key, said.append) for key in keys)
    [train] = [path for path in cache.path.iterdir() if path.name.startswith("train-stack")]
    flip_last_bit(train / "weights.safetensors")
    Run(folder / "runs/again").verify()
    assert command("load_stack", folder).code == 2
    assert not Cache(folder / "runs/cache").has(train.name, said.append)
    assert "set aside" in said[-1]


def test_a_stage_of_another_version_is_made_again(made, monkeypatch):
    folder = made("dictionaries")
    before = {path.name for path in (folder / "runs/cache").iterdir()}
    monkeypatch.setattr(TrainStack, "version", TrainStack.version + 1)
    assert command("run again", folder).code == 0
    after = {path.name for path in (folder / "runs/cache").iterdir()}
    assert sorted(name.rpartition("-")[0] for name in after - before) == ["evaluate-stack", "train-stack"]
    assert results(folder / "runs/again") == results(folder / "runs/run")


def test_the_advice_about_a_damaged_run_works(made, scenarios):
    folder = made("dictionaries")
    flip_last_bit(folder / "runs/run/stacks/00/tables.safetensors")
    said = command("resume", folder).err
    assert "or remove runs/run/checksums.json and run `unbraid resume runs/run` to make it again" in said
    (folder / "runs/run/checksums.json").unlink()
    assert refused(command("show", folder), "runs/run/checksums.json is missing")
    assert refused(command("load_stack", folder), "runs/run/checksums.json is missing")
    assert command("resume", folder).code == 0
    assert command("show", folder).code == 0
    assert results(folder / "runs/run") == results(scenarios["dictionaries"].folder / "runs/run")


def test_a_damaged_report_is_written_again(made):
    folder = made("dictionaries")
    report = folder / "runs/run/report.html"
    assert command("report", folder).code == 0  # the page that a run writes itself says how long it took until then
    whole = report.read_bytes()
    report.write_bytes(whole[:10])
    said = command("resume", folder).err
    assert "`unbraid report runs/run` writes it again" in said
    assert command("report", folder).code == 0
    assert report.read_bytes() == whole
    assert command("resume", folder).code == 0


def test_scores_on_a_language_model_are_not_sealed_anew_when_they_are_damaged(made):
    """The run around them can be made again, they cannot."""
    folder = made("activations")
    path = folder / "runs/run/language_model.json"
    path.write_text(path.read_text().replace("0.5", "0.9"))
    (folder / "runs/run/checksums.json").unlink()
    ended = command("resume", folder)
    said, refusal = ended.err.splitlines()
    assert ended.code == 2
    assert "runs/run/checksums.json is missing; the run is made again" in said
    assert refusal.startswith("unbraid: runs/run/language_model.json is damaged")
    assert json.loads((folder / "runs/run/status.json").read_text())["state"] == "failed"


def test_damaged_byte_pairs_are_refused_with_what_to_do(made):
    folder = made("language_models")
    [tokens] = (folder / "tokens").iterdir()
    flip_last_bit(tokens / "tokens.safetensors")
    ended = command("run again", folder)
    assert refused(ended, f"tokens/{tokens.name}/tokens.safetensors")
    assert "to have it made again" in ended.err
