"""Mirrors of the log: TensorBoard reads what was logged; one that fails is told once; one that is missing is refused.

wandb and trackio are heavier, and are compared with the log by `make interop`.
"""

import json
import signal
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import unbraid as ub
from unbraid.errors import Stopped, UserError
from unbraid.pipeline import mirrors
from unbraid.progress import Silent
from unbraid.results import RunResults

CONFIG = {
    "world": {"dimensions": 8, "n_features": 12, "active": 2.0},
    "dictionary": {"d_sae": 10},
    "training": {"steps": 12, "batch": 16},
    "mechanisms": {"sparsity": {"weight": 0.1}},
    "evaluation": {"samples": 256},
    "checkpoints": {"log_every": 3, "every": 6},
    "seed": [0, 1],
    "mirrors": ["tensorboard"],
}

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def logged(results: RunResults, name: str) -> list[list[tuple[int, float]]]:
    """By member."""
    lines = [json.loads(line) for line in (results.run.stack(0) / "log.jsonl").read_text().splitlines()]
    return [[(line["step"], line[name][member]) for line in lines] for member in range(2)]


def shown(run: str, name: str) -> list[list[tuple[int, float]]]:
    """What TensorBoard shows, by member."""
    curves = []
    for folder in sorted(Path("runs/mirrors/tensorboard", run, "train-stack").iterdir()):
        events = EventAccumulator(str(folder)).Reload()
        assert events.Tags()["scalars"] == ["terms/reconstruction", "terms/sparsity", "l0", "mmcs"]
        curves.append([(event.step, event.value) for event in events.Scalars(name)])
    return curves


def test_tensorboard_shows_every_member_as_it_was_logged():
    results = ub.sweep(CONFIG, name="one", quiet=True)
    for name in ("mmcs", "l0"):
        assert shown("one", name) == logged(results, name)
    assert len(logged(results, "mmcs")[0]) == 4
    assert logged(results, "mmcs")[0] != logged(results, "mmcs")[1]


def test_mirrors_change_nothing():
    with_one = ub.sweep(CONFIG, name="one", quiet=True)
    without = ub.sweep({key: value for key, value in CONFIG.items() if key != "mirrors"}, name="two", quiet=True)
    assert "mirrors" not in without.config
    assert [card["key"] for card in stages(with_one)] == [card["key"] for card in stages(without)]
    assert not Path("runs/mirrors/tensorboard/two").exists()


def stages(results: RunResults) -> list[dict[str, str]]:
    from unbraid.pipeline.expand import expand

    stacks = expand(results.config, "here").stacks
    return [{"key": stage.key} for stack in stacks for stage in stack.first.stages(stack)]


class Interrupted(Silent):
    """Presses Ctrl-C twice after a line that was logged since the last checkpoint: nothing more is saved."""

    def advance(self, index: int, step: int) -> None:
        super().advance(index, step)
        if step == 10:
            raise Stopped(signal.SIGINT, "stopped")


def test_a_resumed_run_shows_every_step_once(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        patched.setattr("unbraid.work.for_terminal", lambda quiet: Interrupted())
        with pytest.raises(Stopped):
            ub.sweep(CONFIG, name="one")
    assert [step for step, _ in shown("one", "mmcs")[0]] == [3, 6, 9]
    results = ub.resume("one", quiet=True)
    assert shown("one", "mmcs") == logged(results, "mmcs")
    assert [step for step, _ in shown("one", "mmcs")[0]] == [3, 6, 9, 12]


def test_one_that_is_not_installed_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "trackio", None)
    expected = r"mirrors has 'trackio', which is not installed here; accepted: `pip install 'unbraid\[trackio\]'`, or "
    with pytest.raises(UserError, match=expected):
        ub.sweep(CONFIG, {"mirrors": ["tensorboard", "trackio"]}, name="one")
    assert not Path("runs").exists()
    with pytest.raises(UserError, match=r"mirrors\.0 is 'mlflow'; it should be 'tensorboard', 'wandb' or 'trackio'"):
        ub.sweep(CONFIG, {"mirrors": ["mlflow"]})


def test_one_that_fails_is_told_once_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch, capsys):
    written: list[int] = []

    def write(self: object, opened: object, step: int, numbers: object) -> None:
        written.append(step)
        if step == 6:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(mirrors.TensorBoard, "write", write)
    results = ub.sweep(CONFIG, name="one", quiet=True)
    assert results.state == "finished"
    assert written == [3, 3, 6]
    said = capsys.readouterr().err
    assert said.count("the mirror 'tensorboard' failed and the run goes on without it: OSError(28, 'No space") == 1
    assert [step for step, _ in logged(results, "mmcs")[0]] == [3, 6, 9, 12]
