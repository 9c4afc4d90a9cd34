"""What a person sees while a run works, at the width of an ordinary terminal."""

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from rich.console import Console
from traitlets.config import Config

from unbraid.progress import (
    PRIOR,
    Bar,
    Lines,
    Notebook,
    OneOfMany,
    Recorded,
    Silent,
    Task,
    TimeLeft,
    for_notebook_or_terminal,
)

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


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell of IPython that keeps what a cell displays."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    yield InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    InteractiveShell.clear_instance()


def test_a_notebook_has_one_bar_that_is_replaced(cell: InteractiveShell, capsys: pytest.CaptureFixture[str]):
    with capture_output(stdout=False, stderr=False) as shown, Notebook() as bar:
        bar.plan([TRAINING])
        for step in range(50):
            bar.advance(0, step)
        bar.log(0, LINE)
        bar.status("<b>done</b>")
        bar.advance(0, 100)
        bar.say("a checkpoint is damaged")
    first, *later = shown._outputs
    assert not first["update"]
    assert all(output["update"] for output in later)
    assert len({output["transient"]["display_id"] for output in shown._outputs}) == 1
    assert 2 <= len(later) <= 4  # not one a step
    assert 'value="0.0000"' in first["data"]["text/html"]
    assert 'value="1.0000"' in later[-1]["data"]["text/html"]
    assert "100%" in later[-1]["data"]["text/plain"]
    assert "&lt;b&gt;done&lt;/b&gt;" in later[-1]["data"]["text/html"]
    assert capsys.readouterr().out == "a checkpoint is damaged\n"


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


def recorded(seconds: float = 0.05) -> tuple[Recorded, list[dict], io.StringIO]:
    written, out = [], io.StringIO()
    return Recorded(Lines(Console(width=200, file=out)), written.append, seconds), written, out


def test_a_record_has_share_task_means_and_curve_and_everything_is_passed_on():
    progress, _, out = recorded()
    progress.plan([TRAINING, Task("evaluation", "evaluate", 1, 100.0)])
    progress.begin(0, 0)
    for step in (25, 50):
        progress.log(0, {**LINE, "step": step})
        progress.advance(0, step)
    record = progress.record()
    assert record["share"] == 0.25
    assert record["task"] == TRAINING.name
    assert record["tasks"] == {"done": 0, "all": 2}
    assert record["curve"] == [
        {"step": step, "MMCS": 0.91, "L0": 5.5, "reconstruction": 0.13, "sparsity": 0.2} for step in (25, 50)
    ]
    assert record["line"] == record["curve"][-1]
    assert record["seconds_left"] > 0
    assert out.getvalue().startswith("top-k · seed 3 · training · step 25/100")


def test_the_record_stays_with_a_task_until_it_is_done_and_keeps_its_last_200_points():
    progress, _, _ = recorded()
    progress.plan([Task(name, "train", 300, 1.0) for name in "ab"], workers=2)
    for step in range(1, 301):
        for index in (0, 1) if step < 300 else (0,):
            progress.log(index, {**LINE, "step": step})
            assert progress.record()["task"] == "a"
            progress.advance(index, step)
    assert [point["step"] for point in progress.record()["curve"]] == list(range(101, 301))
    progress.status("writing the report")
    assert progress.record()["task"] == "writing the report"
    progress.log(1, {**LINE, "step": 300})
    assert progress.record()["task"] == "b"
    assert progress.record()["tasks"] == {"done": 1, "all": 2}


def test_records_are_written_as_the_work_goes_on_and_no_oftener_than_asked():
    progress, written, _ = recorded(seconds=0.05)
    began = time.monotonic()
    with progress:
        progress.plan([TRAINING])
        for step in range(101):
            progress.advance(0, step)
            time.sleep(0.002)
        progress.status("a long stage")
        while not written or written[-1]["task"] != "a long stage":
            assert time.monotonic() - began < 10, "what was said last is never written"
            time.sleep(0.01)
    assert 2 <= len(written) <= 1 + (time.monotonic() - began) / 0.05
    assert [record["share"] for record in written] == sorted(record["share"] for record in written)


def test_a_function_that_is_called_shows_a_bar_where_somebody_looks(monkeypatch):
    def chosen(**console):
        monkeypatch.setattr("unbraid.progress.Console", lambda stderr: Console(file=io.StringIO(), **console))
        return type(for_notebook_or_terminal(quiet=False))

    assert chosen(force_terminal=True) is Bar
    assert chosen(force_terminal=False) is Silent
    assert type(for_notebook_or_terminal(quiet=True)) is Silent
