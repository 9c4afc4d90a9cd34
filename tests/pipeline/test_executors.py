"""Several stacks at once: what is done, told and raised is what one process would have done."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from unbraid.sweeps.crew import work_together

from unbraid.errors import Lost, NotFinite, Stopped, UserError
from unbraid.progress import Progress, Silent
from unbraid.reports.words import in_order
from unbraid.signals import StopSignals

WORKS = [(2, 1.0)] * 4


class Noted(Silent):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def write(folder: Path, index: int, progress: Progress, signals: StopSignals) -> None:
    (folder / str(index)).write_text(str(os.getpid()))
    progress.say(f"stack {index}")
    progress.advance(index, 2)


def note_threads(folder: Path, index: int, progress: Progress, signals: StopSignals) -> None:
    import numba
    from threadpoolctl import threadpool_info

    most = max(one["num_threads"] for one in threadpool_info())
    (folder / str(index)).write_text(f"{most} {numba.config.NUMBA_NUM_THREADS}")


def refuse(index: int, progress: Progress, signals: StopSignals) -> None:
    if index == 1:
        raise NotFinite(7, "loss", 0, "; look there")


def break_down(index: int, progress: Progress, signals: StopSignals) -> None:
    raise KeyError("no such thing")


def vanish(folder: Path, index: int, progress: Progress, signals: StopSignals) -> None:
    (folder / str(index)).touch()
    os._exit(3)


def end_whatever_comes(folder: Path, index: int, progress: Progress, signals: StopSignals) -> None:
    (folder / str(index)).touch()
    if index == 0:
        os.kill(os.getppid(), signal.SIGINT)
    while signals.received is None:
        time.sleep(0.01)
        progress.advance(index, 1)


def wait_to_be_stopped(folder: Path, index: int, progress: Progress, signals: StopSignals) -> None:
    (folder / f"begun-{index}").touch()
    if index == 0:
        os.kill(os.getppid(), signal.SIGTERM)
    while signals.received is None:
        time.sleep(0.01)
        progress.advance(index, 1)
    (folder / f"saved-{index}").touch()
    raise signals.stop(signals.received, f"and saved stack {index}")


def go(labour, progress=None, hands=2):
    progress = progress or Silent()
    progress.plan(WORKS)
    with StopSignals("unbraid resume x") as signals:
        work_together(labour, WORKS, hands, progress, signals)
    return progress


def test_every_stack_is_done_in_another_process_and_told_of(tmp_path):
    progress = go(partial(write, tmp_path), Noted())
    done = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(done) == ["0", "1", "2", "3"]
    assert str(os.getpid()) not in done.values()
    assert sorted(progress.said) == [f"stack {index}" for index in range(4)]
    assert progress.share == 1


def test_what_a_stack_refuses_is_raised_here():
    with pytest.raises(NotFinite, match=r"^the loss of member 0 is not finite at step 7; look there$"):
        go(refuse)


def test_an_error_of_ours_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="no such thing"):
        go(break_down)


def test_a_hand_that_is_lost_is_missed_and_no_other_stack_begun(tmp_path):
    with pytest.raises(Lost, match=r"^the process at work on stack \d ended with exit code 3; .*unbraid resume x$"):
        go(partial(vanish, tmp_path))
    assert {path.name for path in tmp_path.iterdir()} <= {"0", "1"}


def test_a_signal_that_finds_no_stack_in_training_still_stops_the_run(tmp_path):
    """As when it comes while models are scored: what is not begun is not passed over in silence."""
    with pytest.raises(Stopped, match=r"^stopped with [12] of 4 stacks done; go on with: unbraid resume x$"):
        go(partial(end_whatever_comes, tmp_path))
    assert {path.name for path in tmp_path.iterdir()} <= {"0", "1"}


def test_a_signal_lets_every_stack_at_work_save_and_begins_no_other(tmp_path):
    with pytest.raises(Stopped) as stopped:
        go(partial(wait_to_be_stopped, tmp_path))
    assert stopped.value.signal == signal.SIGTERM
    begun, saved = ({path.name.split("-")[1] for path in tmp_path.glob(f"{what}-*")} for what in ("begun", "saved"))
    assert begun == saved
    assert begun <= {"0", "1"}
    assert isinstance(stopped.value, UserError)


def test_work_done_here_and_there_is_as_much_as_in_order():
    works = [(10, 1.0), (10, 3.0), (10, 1.0)]
    assert in_order(works, {0: 5}) == (0, 5)
    assert in_order(works, {0: 5, 2: 8}) == (1, 1)
    assert in_order(works, {0: 10, 1: 10, 2: 10}) == (2, 10)


def test_every_library_of_a_hand_has_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    work_together(partial(note_threads, tmp_path), WORKS, 2, Silent(), StopSignals("go on"))
    assert {(tmp_path / str(index)).read_text() for index in range(4)} == {"1 1"}
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "NUMBA_NUM_THREADS" not in os.environ
