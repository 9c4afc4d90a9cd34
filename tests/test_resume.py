"""A run killed at any moment, however often, ends with the same bits as one never stopped."""

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.killing import kill_until_it_ends, launch, make
from unbraid.pipeline.executors import execute
from unbraid.progress import Silent
from unbraid.storage.runs import Run

CONFIG = """
[world]
dimensions = 16
n_features = 24
active = 3.0
[training]
steps = 300
batch = 64
clip = 1.0
warmup_steps = 10
decay_steps = 50
[dictionary]
d_sae = 32
pre_bias = true
[mechanisms.sparsity]
weight = 0.1
[scoring]
samples = 1024
[saving]
log_every = 2
checkpoint_every = 3
[tracking]
checks = 6
samples = 300
[sweep]
"dictionary.activation" = [{ kind = "relu" }, { kind = "topk", k = 4 }]
"training.learning_rate" = [1e-3, 1e-2]
seed = [0, 1]
"""

KILLS = 20


def results(run: Run) -> dict[str, bytes]:
    """Everything a run ends with that must not depend on how it got there."""
    names = ["weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors", "members.json"]
    names.append("tracking.safetensors")
    kept = {f"{folder.name}/{name}": (folder / name).read_bytes() for folder in run.stacks() for name in names}
    return {**kept, "scores.json": (run.path / "scores.json").read_bytes()}


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make(tmp_path_factory.mktemp("whole"), "whole", CONFIG)
    process = launch("resume", run.path, "-q")
    process.join(120)
    assert process.exitcode == 0
    return run


def test_killed_again_and_again_it_ends_with_the_same_bits(never_stopped: Run, tmp_path: Path):
    dice, kills, victims = random.Random(0), 0, 0
    while kills < KILLS:
        run = make(tmp_path, f"victim-{victims}", CONFIG)
        kills, victims = kills + kill_until_it_ends(run, dice), victims + 1
        assert results(run) == results(never_stopped)


@pytest.mark.parametrize("damage", ["torn arrays", "flipped byte", "torn card", "no arrays"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    damage: str, never_stopped: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(never_stopped.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    for name in ("weights.safetensors", "scores.json"):
        (run.stack(1) / name).unlink()
    damaged = max((run.stack(1) / "checkpoints").glob("*.safetensors"))
    content = damaged.read_bytes()
    match damage:
        case "torn arrays":
            damaged.write_bytes(content[: len(content) // 2])
        case "flipped byte":
            damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "torn card":
            damaged.with_suffix(".json").write_bytes(damaged.with_suffix(".json").read_bytes()[:-9])
        case _:
            damaged.unlink()
    progress = Silent()
    execute(run, progress)
    said = capsys.readouterr().err.splitlines()
    assert any(damaged.stem in sentence and "is damaged" in sentence for sentence in said)
    assert results(run) == results(never_stopped)


def test_training_does_not_depend_on_how_often_it_is_saved_or_logged(never_stopped: Run, tmp_path: Path):
    seldom = CONFIG.replace("log_every = 2", "log_every = 1000")
    run = make(tmp_path, "seldom", seldom.replace("checkpoint_every = 3", "checkpoint_every = 1000"))
    started = time.monotonic()
    process = launch("resume", run.path, "-q")
    process.join(120)
    assert process.exitcode == 0, time.monotonic() - started
    ours, theirs = results(run), results(never_stopped)
    assert {k: v for k, v in ours.items() if "log" not in k} == {k: v for k, v in theirs.items() if "log" not in k}
