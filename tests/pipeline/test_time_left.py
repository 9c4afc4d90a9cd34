"""Time left falls: replayed with a clock of the test's own, from recorded timings of real runs and from made-up ones.

`timings/*.json` hold, of every stage of a run, the seconds of processor time after which it had reached a step, on one
thread. They were recorded by making the stages of a shipped configuration one after the other; the first training of
each run compiles, so that its first step takes seconds. Of the stages that edit the model (`· editing`), those of l1,
top-k, k-means and pca were measured, later and on a busy machine; the other stacks, of l1's size, have l1's seconds.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from unbraid.config import read_toml
from unbraid.config.sweep import at_scale, overridden
from unbraid.pipeline.expand import expand
from unbraid.pipeline.run import missing_stages
from unbraid.progress import OneOfMany, Silent, Task, TimeLeft
from unbraid.storage.runs import Run
from unbraid.studies.shipped import find_config

TIMINGS = sorted((Path(__file__).parent / "timings").glob("*.json"))
Steps = Sequence[tuple[int, float]]
"""After how many seconds of a task it had reached which step."""


class Clock:
    """A clock that goes only when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def replay(tasks: Sequence[Task], recorded: Sequence[Steps]) -> Iterator[tuple[float, float | None]]:
    """The tasks one after the other; whenever one advances, the seconds since the start and the time left."""
    clock = Clock()
    left = TimeLeft(tasks, 1, clock)
    for index, steps in enumerate(recorded):
        began = clock.now
        left.begin(index, 0)
        for step, seconds in steps:
            clock.now = began + seconds
            left.advance(index, step)
            yield clock.now, left.seconds()


def read_timings(path: Path, parent: Path) -> tuple[list[Task], list[Steps]]:
    """The tasks of a recorded configuration, with the guesses of today, and what they took."""
    recorded = json.loads(path.read_text())
    source = recorded["config"]
    data = overridden(at_scale(read_toml(find_config(source)), None, source), recorded["overrides"], source)
    stages = missing_stages(Run(parent / "run"), expand(data, source), print)
    taken = {stage["name"]: stage["steps"] for stage in recorded["stages"]}
    return [stage.task() for stage in stages], [taken[stage.name] for stage in stages]


@pytest.mark.parametrize("path", TIMINGS, ids=lambda path: path.stem)
def test_of_a_real_run_the_time_left_falls_and_is_about_right(path: Path, tmp_path: Path):
    """It rises by less than 15 % of the whole run, and from a third of the run on it is right to a third of it."""
    tasks, recorded = read_timings(path, tmp_path)
    shown = [(now, left) for now, left in replay(tasks, recorded) if left is not None]
    whole = shown[-1][0]
    assert shown[-1][1] == 0
    assert len(shown) >= len(tasks)
    lowest = shown[0][1]
    for now, left in shown:
        assert left < lowest + 0.15 * whole, f"rises to {left:.0f} s at {now:.0f} s of {whole:.0f}"
        lowest = min(lowest, left)
        if now > whole / 3:
            assert abs(left - (whole - now)) < whole / 3, f"{left:.0f} s at {now:.0f} s of {whole:.0f}"


def evenly(steps: int, seconds: float, first: float = 0.0) -> list[tuple[int, float]]:
    """Steps that all take as long, but for the first, which may take longer."""
    return [(step, first + step * seconds) for step in range(1, steps + 1)]


KINDS = [
    *(Task(f"model · seed {seed} · training", "train-models", 100, 0.02) for seed in range(2)),
    *(Task(f"top-k · seed {seed} · training", "train-stack", 200, 0.005) for seed in range(4)),
    *(Task(f"top-k · seed {seed} · evaluation", "evaluate-stack", 1, 4.0) for seed in range(4)),
]


@pytest.mark.parametrize("slower", [0.2, 1.0, 8.0])
def test_on_a_slower_or_faster_machine_it_falls_from_a_tenth_of_the_run_on(slower: float):
    """Several kinds of stages of very different cost; the guesses are right but for the speed of the machine."""
    recorded = [evenly(task.steps, slower * task.seconds_per_step) for task in KINDS]
    shown = list(replay(KINDS, recorded))
    whole = shown[-1][0]
    known = [(now, left) for now, left in shown if now > 0.1 * whole]
    for (_, before), (now, left) in pairwise(known):
        assert left is not None
        assert before is not None
        assert left < before + 0.02 * whole, f"rises from {before:.0f} s to {left:.0f} s at {now:.0f} s of {whole:.0f}"
    halfway = next(left for now, left in known if now > whole / 2)
    assert halfway == pytest.approx(whole / 2, rel=0.7 if slower >= 1 else 1.5)


def test_a_first_step_that_compiles_does_not_count_for_all_steps():
    """Ten seconds for a step of 5 ms: were all steps like it, 2,000 s would be left of each task."""
    clock = Clock()
    left = TimeLeft(KINDS, 1, clock)
    left.begin(2, 0)
    clock.now = 10.0
    left.advance(2, 1)
    guessed = sum(task.seconds for task in KINDS)
    assert guessed / 2 < left.seconds() < 5 * guessed


def test_a_stage_of_one_step_is_measured_from_its_beginning():
    """An evaluation says nothing until it is done; those to come then take as long."""
    tasks = [Task(str(index), "evaluate-stack", 1, 2.0) for index in range(11)]
    *_, (now, seconds) = replay(tasks, [[(1, 20.0)]] * 10)
    assert now == 200
    assert seconds == pytest.approx(20.0, rel=0.2)


def test_what_was_done_before_a_stop_is_not_measured():
    """From a checkpoint at step 900 of 1,000: the 100 steps took the time, not 1,000."""
    clock = Clock()
    left = TimeLeft([Task("a", "train", 1000, 1.0), Task("b", "train", 1000, 1.0)], 1, clock)
    left.begin(0, 0)
    left.begin(0, 900)
    clock.now = 100.0
    left.advance(0, 1000)
    assert left.seconds() == pytest.approx(1000, rel=0.01)


def test_while_a_stage_is_at_work_time_passes():
    clock = Clock()
    left = TimeLeft([Task("a", "train", 10, 1.0), Task("b", "evaluate", 1, 100.0)], 2, clock)
    left.begin(0, 0)
    left.begin(1, 0)
    clock.now = 1.0
    left.advance(0, 1)
    before = left.seconds()
    clock.now = 31.0
    assert left.seconds() == pytest.approx(before - 30)


def test_side_by_side_the_longest_task_counts():
    """Two workers: half of what is left in all, but no less than the longest."""
    clock = Clock()
    tasks = [Task("a", "train", 10, 1.0), Task("b", "train", 10, 1.0), Task("c", "evaluate", 1, 100.0)]
    left = TimeLeft(tasks, 2, clock)
    left.begin(0, 0)
    clock.now = 10.0
    left.advance(0, 10)
    assert left.seconds() == pytest.approx(100)


def test_nothing_is_said_before_anything_was_measured():
    left = TimeLeft(KINDS, 1, Clock())
    assert left.seconds() is None
    left.begin(0, 0)
    assert left.seconds() is None


def test_one_run_of_many_is_measured_from_its_beginning_too():
    whole = Silent()
    whole.plan(KINDS)
    part = OneOfMany(whole, 2)
    part.begin(0, 0)
    part.advance(0, 200)
    assert whole._time.seconds() is not None
    assert whole._time.share() == pytest.approx(1.0 / sum(task.seconds for task in KINDS))
