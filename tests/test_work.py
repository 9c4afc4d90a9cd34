"""Runs, sweeps and claims from Python: the same as the command line makes, whatever form their configuration has."""

import multiprocessing.spawn
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import unbraid as ub
from unbraid import cli
from unbraid.config.sweep import lists_to_sweep
from unbraid.errors import Stopped, UserError
from unbraid.pipeline.executors import _without_script
from unbraid.pipeline.kinds import KINDS
from unbraid.progress import Silent
from unbraid.results import RunResults
from unbraid.storage.files import read_arrays, read_json
from unbraid.work import read_config

TINY = {
    "world": {"dimensions": 8, "n_features": 12, "active": 2.0},
    "dictionary": {"d_sae": 10},
    "training": {"steps": 12, "batch": 16},
    "evaluation": {"samples": 256},
    "checkpoints": {"log_every": 3, "every": 4},
}
WRITTEN = """
[world]
dimensions = 8
n_features = 12
active = 2.0
[dictionary]
d_sae = 10
activation = {kind = "topk", k = 2}
[training]
steps = 12
batch = 16
[evaluation]
samples = 256
[checkpoints]
log_every = 3
every = 4
"""

TOP_K = {"kind": "topk"}

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def weights(results: RunResults) -> dict[str, bytes]:
    paths = sorted(results.run.path.glob("stacks/*/weights.safetensors"))
    return {f"{path.parent.name}/{k}": a.tobytes() for path in paths for k, a in read_arrays(path).items()}


def test_objects_dotted_paths_and_a_file_are_one_configuration(tmp_path: Path):
    Path("tiny.toml").write_text(WRITTEN)
    assert cli.guarded(lambda: cli.app(["run", "tiny.toml", "training.steps=6", "--name", "typed", "-q"])) == 0
    objects = {"world": ub.Superposition(dimensions=8, n_features=12, active=2.0), "dictionary.d_sae": np.int64(10)}
    rule = {"dictionary": {"activation": ub.TopK(k=2)}, "training": {"steps": 6, "batch": 16}}
    rest = ["evaluation.samples=256", "checkpoints.log_every=3", {"checkpoints.every": 4}]
    given = ub.run(objects, rule, *rest, name="given", quiet=True)
    from_file = ub.run(tmp_path / "tiny.toml", {"training.steps": 6}, name="file", quiet=True)
    typed = ub.load_run("typed")
    assert given.config == from_file.config == typed.config
    assert weights(given) == weights(from_file) == weights(typed) != {}
    assert read_json(given.run.path / "scores.json") == read_json(typed.run.path / "scores.json")
    assert isinstance(given, type(typed))
    assert (given.run.path / "report.html").is_file()


def test_a_shipped_name_and_its_scale():
    data, source = read_config("pipeline/demo", ["training.steps=7"], None)
    assert data["training"]["steps"] == 7
    assert source.endswith("demo.toml")
    assert read_config("superposition/grid", [], "small")[0]["scale"] == "small"
    with pytest.raises(UserError, match=r"no file, nor|no such file, nor a configuration of that name; did you mean"):
        ub.run("pipeline/dem")
    with pytest.raises(UserError, match="has no scales"):
        ub.run(TINY, scale="small")


def test_a_run_of_the_same_name_is_gone_on_with_or_refused():
    first = ub.run(TINY, name="one", quiet=True)
    began = first.run.facts()["began"], first.run.status()["seconds"]
    again = ub.run(TINY, name="one", quiet=True)
    assert (again.run.facts()["began"], again.run.status()["seconds"]) == began
    with pytest.raises(UserError, match="runs/one exists already; accepted: another name"):
        ub.run(TINY, "training.steps=13", name="one", quiet=True)
    with pytest.raises(UserError, match="no slashes"):
        ub.run(TINY, name="a/b")
    with pytest.raises(UserError, match="mirrors is not for a run"):
        ub.run(TINY, name="mirrors")


def test_lists_are_swept_and_equal_shapes_are_one_stack():
    lists = {"mechanisms.sparsity.weight": np.array([0.05, 0.2]), "dictionary": {"d_sae": (10, 14)}, "seed": range(2)}
    swept = ub.sweep(TINY, lists, quiet=True, name="lists")
    table = {"dictionary.d_sae": [10, 14], "mechanisms.sparsity.weight": [0.05, 0.2], "seed": [0, 1]}
    same = ub.run({**TINY, "sweep": table}, quiet=True, name="table")
    assert swept.config["sweep"] == table
    assert swept.config == same.config
    assert weights(swept) == weights(same)
    members = swept.members
    assert len(members) == 8
    assert members.groupby("stack")["label"].unique().map(list).to_list() == [
        ["d_sae 10, weight 0.05", "d_sae 10, weight 0.2"],
        ["d_sae 14, weight 0.05", "d_sae 14, weight 0.2"],
    ]


@pytest.mark.parametrize(
    ("kind", "data", "sweep"),
    [
        ("dictionaries", {"replicate": [0, 1]}, {"replicate": [0, 1]}),
        ("dictionaries", {"dictionary": {"activation": [TOP_K]}}, {"dictionary.activation": [TOP_K]}),
        ("dictionaries", {"dictionary": {"activation": {**TOP_K, "k": [2, 4]}}}, {"dictionary.activation.k": [2, 4]}),
        ("dictionaries", {"mechanisms": {"matryoshka": {"prefixes": [0.25, 0.5]}}}, None),
        ("dictionaries", {"training": {"steps": [8]}, "sweep": {"seed": [1]}}, {"seed": [1], "training.steps": [8]}),
        ("pipeline", {"activations": {"input": ["a", "b"], "stories": [50, 60]}}, {"activations.stories": [50, 60]}),
        ("models", {"model": {"kind": "transformer", "layers": [1, 2]}}, {"model.layers": [1, 2]}),
    ],
)
def test_only_lists_where_one_value_stands_are_swept(kind, data, sweep):
    assert lists_to_sweep(data, KINDS[kind], "here").get("sweep") == sweep


def test_bad_sweeps_are_refused():
    with pytest.raises(UserError, match="'seed' is a list, and is swept in the table sweep too"):
        ub.sweep({**TINY, "seed": [0, 1], "sweep": {"seed": [0, 1]}})
    with pytest.raises(UserError, match="the sweep has 20,001 members; accepted: at most 20,000"):
        ub.sweep(TINY, {"seed": range(20_001)})
    with pytest.raises(UserError, match=r'sweep."evaluation.samples" cannot be swept'):
        ub.sweep(TINY, {"evaluation.samples": [1, 2]})
    with pytest.raises(UserError, match=r"there is no setting 'training\.stepps'; did you mean 'steps'"):
        ub.run(TINY, {"training.stepps": 3})
    assert not Path("runs").exists()


class Interrupted(Silent):
    """Presses Ctrl-C at the fifth step."""

    def advance(self, index: int, step: int) -> None:
        super().advance(index, step)
        if step == 5:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_keeps_what_there_is_and_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        patched.setattr("unbraid.work.for_terminal", lambda quiet: Interrupted())
        with pytest.raises(Stopped, match=r"saved .* at step 6; go on with: ub\.resume\('runs/one'\)"):
            ub.run(TINY, name="one")
    assert ub.load_run("one").state == "stopped"
    resumed = ub.resume("one", quiet=True)
    assert weights(resumed) == weights(ub.run(TINY, name="whole", runs="elsewhere", quiet=True))


def test_a_run_in_another_thread_answers_no_signals():
    ended: list[str] = []
    thread = threading.Thread(target=lambda: ended.append(ub.run(TINY, name="aside", quiet=True).state))
    thread.start()
    thread.join()
    assert ended == ["finished"]


def test_workers_do_not_run_the_script_again(monkeypatch: pytest.MonkeyPatch):
    """Python's `spawn` imports the main module in every process, where a script would start its run once more."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/a/script.py", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert "init_main_from_path" in multiprocessing.spawn.get_preparation_data("worker")
    with _without_script():
        prepared = multiprocessing.spawn.get_preparation_data("worker")
    assert not {"init_main_from_path", "init_main_from_name"} & prepared.keys()
    assert sys.modules["__main__"].__file__ == "/a/script.py"
