"""Tracking: what it writes is true, changes nothing, and comes out the same bit for bit after a stop."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from unbraid.sweeps.grid import resolve

from unbraid.config import to_toml
from unbraid.dictionaries import Dictionary, Relu, Stack, TopK
from unbraid.metrics.recovery import FATES
from unbraid.pipeline.executors import execute
from unbraid.pipeline.tracker import check_steps, fires
from unbraid.progress import Silent
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run
from unbraid.worlds import Superposition

CHECKED = 6
TINY = {
    "world": {"dimensions": 8, "n_features": 12, "active": 2.0},
    "dictionary": {"d_sae": 10},
    "training": {"steps": 40, "batch": 32, "learning_rate": 0.02},
    "mechanisms": {"sparsity": {"weight": 0.05}},
    "scoring": {"samples": 256},
    "saving": {"log_every": 10, "checkpoint_every": 7},
    "tracking": {"checks": CHECKED, "samples": 600},
    "sweep": {"mechanisms.sparsity.weight": [0.05, 0.2]},
}


def make(parent: Path, name: str, **changes: object) -> Run:
    run = Run.create(parent, name, to_toml(resolve({**TINY, **changes}, name)))
    execute(run, Silent())
    return run


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make(tmp_path_factory.mktemp("tracked"), "tracked")


def kept(run: Run) -> dict[str, bytes]:
    paths = [run.path / "scores.json", *run.stack(0).glob("*.safetensors"), *(run.stack(0) / "tracking").iterdir()]
    return {str(path.relative_to(run.path)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("steps", "checks", "expected"),
    [
        (1000, 4, [0, 1, 10, 100, 1000]),
        (1000, 1, [0, 1000]),
        (1000, 0, []),
        (3, 50, [0, 1, 2, 3]),
        (1, 3, [0, 1]),
    ],
)
def test_checks_are_evenly_spaced_in_the_logarithm_from_the_start_to_the_end(
    steps: int, checks: int, expected: list[int]
):
    assert check_steps(steps, checks) == expected


def test_tracking_does_not_change_training(tracked: Run, tmp_path: Path):
    untracked = make(tmp_path, "untracked", tracking={"checks": 0})
    for name in ("weights.safetensors", "log.jsonl", "tables.safetensors"):
        assert (tracked.stack(0) / name).read_bytes() == (untracked.stack(0) / name).read_bytes()
    assert not (untracked.stack(0) / "tracking").exists()
    assert not (untracked.stack(0) / "tracking.safetensors").exists()


def test_the_last_check_is_of_the_final_weights(tracked: Run):
    world = Superposition(dimensions=8, n_features=12, active=2.0)
    decoder = read_arrays(tracked.stack(0) / "weights.safetensors")["decoder"]
    found = read_arrays(tracked.stack(0) / "tracking.safetensors")
    cosine = np.einsum("nd,mfd->mnf", world.directions.numpy(), decoder)
    np.testing.assert_allclose(found["best"][:, -1], cosine.max(-1), atol=1e-5)
    np.testing.assert_array_equal(found["entry"][:, -1], cosine.argmax(-1))
    assert found["steps"].tolist() == check_steps(40, CHECKED)
    assert all(found[fate].shape == (4, 2, len(found["steps"])) for fate in FATES)
    assert (sum(found[fate] for fate in FATES) == 12).all()


def test_change_is_that_of_the_entries_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("unbraid.sweeps.tracker.Tracker.drop_directions", lambda self: None)
    run = make(tmp_path, "kept")
    folder, (before, now) = run.stack(0) / "tracking", check_steps(40, CHECKED)[-2:]
    then, here = (read_arrays(folder / f"{step:09d}.directions.safetensors")["directions"] for step in (before, now))
    turned = read_arrays(folder / f"{now:09d}.safetensors")["change"]
    np.testing.assert_allclose(turned, 1 - (then * here).sum(-1), atol=1e-5)


def test_the_totals_are_scores(tracked: Run):
    scores, found = read_json(tracked.stack(0) / "scores.json"), read_arrays(tracked.stack(0) / "tracking.safetensors")
    middling = found["thresholds"].tolist().index(0.9)
    assert scores["values"]["still_learned"] == found["still"][middling, :, -1].tolist()
    assert scores["values"]["unlearned_total"] == found["unlearned"][middling].sum(-1).tolist()
    assert "still_learned" in tracked.scores()["settings"][0]["metrics"]


@pytest.mark.parametrize("lost", [0, 14, 28, 35])
def test_resumed_from_any_checkpoint_it_writes_the_same_bytes(lost: int, tmp_path: Path, tracked: Run):
    """A stop is a run whose later files are not there: here by breaking off at a step."""
    run = Run.create(tmp_path, "resumed", to_toml(resolve(TINY, "resumed")))

    class Break(Silent):
        def advance(self, stack: int, step: int) -> None:
            if step == lost and lost:
                raise KeyboardInterrupt

    if lost:
        with pytest.raises(KeyboardInterrupt):
            execute(run, Break())
    execute(run, Silent())
    assert kept(run) == kept(tracked)


def test_without_the_checks_it_made_a_stack_starts_again(
    tracked: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(tracked.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    (run.stack(0) / "scores.json").unlink()
    (run.stack(0) / "tracking" / f"{1:09d}.safetensors").unlink()
    execute(run, Silent())
    assert "lacks a check" in capsys.readouterr().err
    assert kept(run) == kept(tracked)


@pytest.mark.parametrize("activation", [Relu(), TopK(k=2)])
def test_what_fires_is_what_codes_say(activation: Relu | TopK, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("unbraid.sweeps.tracker.BATCH", 100)
    monkeypatch.setattr("unbraid.sweeps.tracker.BLOCK", 30)
    world = Superposition(dimensions=8, n_features=12, active=1.0)
    stack = Stack.start(Dictionary(d_sae=64, activation=activation), 8, [0])
    stack.encoder_bias.copy_(torch.linspace(-2, 0.1, 64)[None])
    codes = [stack.encode(world.batch(i, size, split="tracking").x) for i, size in enumerate([100, 100, 50])]
    expected = torch.stack([code.counts()[0] for code in codes]).sum(0) > 0
    assert torch.equal(fires(stack, world, 250), expected)
    assert 0 < expected.sum() < 64
