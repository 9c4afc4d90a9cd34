"""What a person sees while a run works, at the width of an ordinary terminal."""

import io
import time

import pytest
from rich.console import Console

from unbraid.progress import PRIOR, Bar, Lines, OneOfMany, Task, TimeLeft

TRAINING = Task("top-k · seed 3 · training", "train", 100, 1.0)
LINE = {
    "step": 50,
    "terms": {"reconstruction": [0.12, 0.14], "sparsity": [0.2, 0.2]},
    "l0": [5.0, 6.0],
    "mmcs": [0.9, 0.92],
}


def test_the_bar_shows_time_left_and_the_numbers_at_80_columns():
    out = io.StringIO()
    with Bar(Console(width=80, force_terminal=True, file=out, color_system=None)) as bar:
        bar.plan([TRAINING])
        for step in (10, 30, 50):
            time.sleep(0.01)
            bar.advance(0, step)
        bar.log(0, LINE)
        bar.say("a checkpoint is damaged")
    shown = out.getvalue()
    assert "50%" in shown
    assert "left" in shown
    assert "MMCS 0.91  L0 5.5  reconstruction 0.13" in shown
    assert "a checkpoint is damaged" in shown


def test_plain_lines_tell_the_time_left():
    out = io.StringIO()
    lines = Lines(Console(width=200, file=out))
    lines.plan([TRAINING])
    lines.advance(0, 0)
    time.sleep(0.01)
    lines.advance(0, 50)
    lines.log(0, LINE)
    assert out.getvalue().startswith("top-k · seed 3 · training · step 50/100  MMCS 0.91  L0 5.5")
    assert out.getvalue().endswith("left\n")


def test_several_runs_are_one_work():
    out = io.StringIO()
    whole = Lines(Console(width=200, file=out))
    tasks = [Task("a", "train", 100, 1.0), Task("b", "train", 50, 4.0), Task("c", "train", 100, 1.0)]
    whole.plan(tasks)
    second = OneOfMany(whole, first=1)
    second.plan(tasks[1:])  # of which the whole knows already
    second.log(0, {**LINE, "step": 50})
    second.log(1, {**LINE, "step": 100})
    assert [line.split("  ")[0] for line in out.getvalue().splitlines()] == ["b · step 50/50", "c · step 100/100"]
    second.say("kept\nin one line")
    assert out.getvalue().splitlines()[-1] == "kept\\nin one line"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_left_is_measured_by_the_kind_of_task():
    """Training takes twice its guess, evaluation half of it: each is foretold by its own kind."""
    clock = Clock()
    tasks = [Task("t", "train", 10, 1.0), Task("e", "evaluate", 10, 1.0), Task("t", "train", 10, 1.0)]
    left = TimeLeft([*tasks, Task("e", "evaluate", 10, 1.0)], clock=clock)
    assert left.seconds() is None
    left.advance(0, 0)
    clock.now = 20.0
    left.advance(0, 10)
    overall = (20 + PRIOR) / (10 + PRIOR)
    training = (20 + PRIOR * overall) / (10 + PRIOR)
    assert left.seconds() == pytest.approx(10 * (overall + training + overall))
    left.advance(1, 0)
    clock.now = 25.0
    left.advance(1, 10)
    overall = (25 + PRIOR) / (20 + PRIOR)
    training, evaluation = ((taken + PRIOR * overall) / (10 + PRIOR) for taken in (20, 5))
    assert left.seconds() == pytest.approx(10 * (training + evaluation))
    assert training > 1.5 > 0.9 > evaluation
    assert left.share() == 0.5


def test_time_left_falls_as_work_goes_on():
    clock, seen = Clock(), []
    left = TimeLeft([Task("a", "train", 100, 0.3), Task("b", "train", 100, 0.3)], clock=clock)
    for task in (0, 1):
        left.advance(task, 0)
        for step in range(10, 101, 10):
            clock.now += 1.0
            left.advance(task, step)
            seen.append(left.seconds())
    assert seen == sorted(seen, reverse=True)
    overall = (1 + PRIOR) / (3 + PRIOR)
    assert seen[0] == pytest.approx(57 * (1 + PRIOR * overall) / (3 + PRIOR))
    assert seen[4] == pytest.approx(15.0, rel=0.3)  # of 20 s, five have passed
    assert seen[-1] == 0.0


def test_time_left_of_tasks_side_by_side_is_shared():
    clock = Clock()
    left = TimeLeft([Task(name, "train", 10, 1.0) for name in "abcd"], workers=2, clock=clock)
    for task in (0, 1):
        left.advance(task, 0)
    clock.now = 10.0
    for task in (0, 1):
        left.advance(task, 10)
    assert left.seconds() == pytest.approx(10.0)


def test_a_language_model_shows_loss_and_perplexity_and_its_loss_once():
    out = io.StringIO()
    lines = Lines(Console(width=120, file=out))
    lines.plan([TRAINING])
    terms = {"answers": [2.0, 3.0], "orthogonality": [0.1, 0.1]}
    lines.log(0, {"step": 50, "terms": terms, "accuracy": [0.5, 0.5], "loss": [2.0, 3.0], "perplexity": [7.4, 20.1]})
    assert "loss 2.5  perplexity 13.8  accuracy 0.5  orthogonality 0.1" in out.getvalue()
