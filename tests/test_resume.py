"""A run killed at any moment, however often, ends with the same bits as one never stopped, and leaves no litter."""

import random
import shutil
from pathlib import Path

import pytest

from tests.killing import CONFIGS, DICTIONARIES, finish, kill_until_it_ends, launch, litter, make, results
from tests.killing import wait_for_progress as wait
from unbraid.storage.runs import Run

KILLS = {"dictionaries": 5, "baselines": 2, "models": 2, "language_models": 2, "pipeline": 4, "embedding": 2}
"""In CI, of every kind of run."""
MANY = 4
"""The same in `make slow`, of every kind and with as many threads: one and two."""


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of every kind, by one process."""
    parent = tmp_path_factory.mktemp("whole")
    return {kind: finish(make(parent / kind, "whole", text)) for kind, text in CONFIGS.items()}


def battery(kind: str, run_to_match: Run, folder: Path, dice: random.Random, least: int, threads: int = 1) -> int:
    """Kill runs of a kind so many times or more; each ends as it should have. Returns how many kills there were."""
    kills, victims = 0, 0
    while kills < least:
        parent = folder / f"{kind}-{threads}-{victims}"
        run = make(parent, "victim", CONFIGS[kind])
        kills += kill_until_it_ends(run, dice, most=least - kills, threads=threads)
        victims += 1
        assert results(run) == results(run_to_match)
        assert litter(parent) == []
        assert victims < 20, f"of {kind} only {kills} runs could be killed before they ended"
    return kills


def test_a_run_never_stopped_leaves_no_litter(never_stopped: dict[str, Run]):
    for run in never_stopped.values():
        assert litter(run.path.parent) == []


@pytest.mark.parametrize("kind", CONFIGS)
def test_killed_it_ends_with_the_same_bits(kind: str, never_stopped: dict[str, Run], tmp_path: Path):
    assert battery(kind, never_stopped[kind], tmp_path, random.Random(0), KILLS[kind]) == KILLS[kind]


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bits(
    never_stopped: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """With two threads the sums of a baseline round otherwise, so a run is held against one with as many threads."""
    dice, kills = random.Random(1), {}
    for kind, run in never_stopped.items():
        with_two = finish(make(tmp_path / f"{kind}-whole", "whole", CONFIGS[kind]), threads=2)
        matched = {1: run, 2: with_two}
        kills[kind] = sum(battery(kind, matched[threads], tmp_path, dice, MANY, threads) for threads in matched)
    with capsys.disabled():
        print(f"\n{sum(kills.values())} kills, every run with the same bits and no litter: {kills}")
    assert sum(kills.values()) >= 40


@pytest.mark.slow
def test_killed_while_its_report_is_drawn_it_draws_it_again(never_stopped: dict[str, Run], tmp_path: Path):
    run = make(tmp_path, "victim", DICTIONARIES)
    finish_without_report(run)
    assert kill_until_it_ends(run, random.Random(3), most=4, drawn=True) >= 1  # it may end before the fourth
    assert (run.path / "report.html").read_text().startswith("<!doctype html>")
    assert results(run) == results(never_stopped["dictionaries"])
    assert litter(tmp_path) == []


def finish_without_report(run: Run) -> None:
    """All but the report: its stages are in the cache."""
    twin = finish(make(run.path.parent, "twin", DICTIONARIES))
    shutil.rmtree(twin.path)


@pytest.mark.parametrize("damage", ["torn arrays", "flipped byte", "torn JSON", "no arrays"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    damage: str, never_stopped: dict[str, Run], tmp_path: Path
):
    run = make(tmp_path, "victim", DICTIONARIES)
    process = launch("resume", run.path, "-q")
    while process.is_alive() and len(list(tmp_path.rglob("step-*.json"))) < 2:
        wait(process, tmp_path)
    process.kill()
    process.join()
    damaged = max(tmp_path.rglob("step-*.json")).with_suffix(".safetensors")
    content = damaged.read_bytes()
    match damage:
        case "torn arrays":
            damaged.write_bytes(content[: len(content) // 2])
        case "flipped byte":
            damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "torn JSON":
            damaged.with_suffix(".json").write_bytes(damaged.with_suffix(".json").read_bytes()[:-9])
        case _:
            damaged.unlink()
    process = launch("resume", run.path, "-q", said=tmp_path / "said")
    process.join(120)
    assert process.exitcode == 0
    said = (tmp_path / "said").read_text().splitlines()
    assert any(damaged.stem in sentence and "is damaged" in sentence for sentence in said), said
    assert any("goes on from step" in sentence and "step 0" not in sentence for sentence in said), said
    assert results(run) == results(never_stopped["dictionaries"])
    assert litter(tmp_path) == []


def test_training_does_not_depend_on_how_often_it_is_saved_or_logged(never_stopped: dict[str, Run], tmp_path: Path):
    seldom = DICTIONARIES.replace("log_every = 2", "log_every = 1000").replace("every = 3\n", "every = 1000\n")
    assert seldom != DICTIONARIES
    ours, theirs = results(finish(make(tmp_path, "seldom", seldom))), results(never_stopped["dictionaries"])
    logs = [name for name in theirs if name.endswith(("log.jsonl", "config.toml"))]
    assert len(logs) == 3
    for name in logs:
        assert ours.pop(name) != theirs.pop(name)
    assert ours == theirs
