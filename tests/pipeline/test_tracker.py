"""Tracking: what it writes is true, changes nothing, and comes out the same bit for bit after a stop."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.pipeline.running import Dying, Killed, create, finish, run_config
from unbraid.dictionaries import Dictionary, Relu, Stack, TopK
from unbraid.metrics.recovery import FATES
from unbraid.pipeline.tracker import Tracker, Tracking, check_steps, fires
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run
from unbraid.worlds import Superposition

CHECKED = 6
TINY = {
    "world": {"dimensions": 8, "n_features": 12, "active": 2.0},
    "dictionary": {"d_sae": 10},
    "training": {"steps": 40, "batch": 32, "learning_rate": 0.02},
    "mechanisms": {"sparsity": {"weight": 0.05}},
    "evaluation": {"samples": 256},
    "checkpoints": {"log_every": 10, "every": 7},
    "tracking": {"checks": CHECKED, "samples": 600},
    "sweep": {"mechanisms.sparsity.weight": [0.05, 0.2]},
}


TRAINING = "2 settings from weight 0.05 · seed 0/0 · training"


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(tmp_path_factory.mktemp("tracked"), "tracked", TINY)


def kept(run: Run) -> dict[str, bytes]:
    paths = [run.path / "scores.json", *run.stack(0).glob("*.safetensors"), run.stack(0) / "training.json"]
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
    untracked = run_config(tmp_path, "untracked", {**TINY, "tracking": {"checks": 0}})
    for name in ("weights.safetensors", "log.jsonl", "tables.safetensors"):
        assert (tracked.stack(0) / name).read_bytes() == (untracked.stack(0) / name).read_bytes()
    assert not (untracked.stack(0) / "tracking.safetensors").exists()


def test_the_last_check_is_of_the_final_weights(tracked: Run):
    world = Superposition(dimensions=8, n_features=12, active=2.0)
    decoder = read_arrays(tracked.stack(0) / "weights.safetensors")["decoder"]
    arrays = read_arrays(tracked.stack(0) / "tracking.safetensors")
    cosine = np.einsum("nd,mfd->mnf", world.directions.numpy(), decoder)
    np.testing.assert_allclose(arrays["best"][:, -1], cosine.max(-1), atol=1e-5)
    np.testing.assert_array_equal(arrays["entry"][:, -1], cosine.argmax(-1))
    assert arrays["steps"].tolist() == check_steps(40, CHECKED)
    assert all(arrays[fate].shape == (4, 2, len(arrays["steps"])) for fate in FATES)
    assert (sum(arrays[fate] for fate in FATES) == 12).all()


def test_change_is_that_of_the_entries_directions(tmp_path: Path):
    """By hand, of two dictionaries whose entries were turned between two checks."""
    world = Superposition(dimensions=8, n_features=12, active=2.0)
    tracker = Tracker(tmp_path, world, Tracking(checks=1, samples=10), 40)
    stacks = [Stack.start(Dictionary(d_sae=10), 8, [seed, seed + 1]) for seed in (0, 5)]
    for step, stack in zip((0, 40), stacks, strict=True):
        tracker.check(stack, step)
    cosines = [torch.einsum("nd,mfd->mnf", world.directions, stack.directions) for stack in stacks]
    then, now = (
        torch.stack([rows[best] for rows, best in zip(stack.directions, cosine.argmax(-1), strict=True)])
        for stack, cosine in zip(stacks, cosines, strict=True)
    )
    turned = read_arrays(tmp_path / "tracking" / f"{40:09d}.safetensors")["change"]
    np.testing.assert_allclose(turned, 1 - (then * now).sum(-1).numpy(), atol=1e-5)


def test_the_totals_are_scores(tracked: Run):
    values = read_json(tracked.stack(0) / "training.json")["values"]
    arrays = read_arrays(tracked.stack(0) / "tracking.safetensors")
    middling = arrays["thresholds"].tolist().index(0.9)
    assert values["still_learned"] == arrays["still"][middling, :, -1].tolist()
    assert values["unlearned_total"] == arrays["unlearned"][middling].sum(-1).tolist()
    assert values["unlearned_same_entry"] == arrays["unlearned_same_entry"][middling].sum(-1).tolist()
    assert values["unlearned_average"] == arrays["unlearned"][middling, :, 1:].mean(-1).tolist()
    assert "still_learned" in tracked.scores()["settings"][0]["metrics"]


def test_what_is_learned_rose_and_what_is_unlearned_fell_by_the_difference_of_best_cosines(tracked: Run):
    """Over all thresholds and both members, from the best cosines on disk."""
    arrays = read_arrays(tracked.stack(0) / "tracking.safetensors")
    seen = 0
    for level, threshold in enumerate(arrays["thresholds"]):
        for member in range(2):
            best, entry = arrays["best"][member], arrays["entry"][member]
            for check in range(1, len(best)):
                before, now = best[check - 1] >= threshold, best[check] >= threshold
                for fate, chosen in {"learned": ~before & now, "unlearned": before & ~now}.items():
                    mean = arrays[f"gain_{fate}"][level, member, check]
                    if chosen.any():
                        assert mean == pytest.approx((best[check] - best[check - 1])[chosen].mean(), abs=1e-6)
                        seen += 1
                    else:
                        assert np.isnan(mean)
                same = before & ~now & (entry[check] == entry[check - 1])
                assert arrays["unlearned_same_entry"][level, member, check] == same.sum()
    assert seen > 3


def test_the_checks_of_a_finished_stage_are_in_one_file(tracked: Run):
    assert not list(tracked.cache.glob("*/tracking"))
    assert not (tracked.stack(0) / "tracking").exists()


@pytest.mark.parametrize("step", [1, 14, 28, 35])
def test_resumed_from_any_checkpoint_it_writes_the_same_bytes(step: int, tmp_path: Path, tracked: Run):
    run = create(tmp_path, "resumed", TINY)
    with pytest.raises(Killed):
        finish(run, Dying(TRAINING, step))
    assert kept(finish(run)) == kept(tracked)


def test_without_the_checks_it_made_a_stack_starts_again(
    tracked: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = create(tmp_path, "run", TINY)
    with pytest.raises(Killed):
        finish(run, Dying(TRAINING, 30))
    (path,) = run.cache.glob(f"*/tracking/{1:09d}.safetensors")
    path.unlink()
    finish(run)
    said = capsys.readouterr().err
    assert f"{path} is not what it was at the checkpoint of step 28" in said
    assert "goes on from step 0" in said
    assert kept(run) == kept(tracked)


@pytest.mark.parametrize("activation", [Relu(), TopK(k=2)])
def test_what_fires_is_what_codes_say(activation: Relu | TopK, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("unbraid.pipeline.tracker.BATCH", 100)
    monkeypatch.setattr("unbraid.pipeline.tracker.BLOCK", 30)
    world = Superposition(dimensions=8, n_features=12, active=1.0)
    stack = Stack.start(Dictionary(d_sae=64, activation=activation), 8, [0])
    stack.encoder_bias.copy_(torch.linspace(-2, 0.1, 64)[None])
    codes = [stack.encode(world.batch(i, size, split="tracking").x) for i, size in enumerate([100, 100, 50])]
    expected = torch.stack([code.counts()[0] for code in codes]).sum(0) > 0
    assert torch.equal(fires(stack, world, 250), expected)
    assert 0 < expected.sum() < 64
