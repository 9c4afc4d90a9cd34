"""One process of a crew: it does the work of the stacks that it is given, and tells its parent how that goes."""

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from unbraid.config import Tree
from unbraid.errors import Refusal
from unbraid.progress import Watcher
from unbraid.signals import StopSignals

Labour = Callable[[int, Watcher, StopSignals], None]
"""Does the work of one stack; it must be possible to send it to another process."""


class Telling(Watcher):
    """Tells the parent, and passes on its signal."""

    def __init__(self, line: Connection, stop: Any, signals: StopSignals) -> None:
        super().__init__()
        self._line, self._stop, self._signals = line, stop, signals

    def advance(self, stack: int, step: int) -> None:
        self._signals.received = self._stop.value or None
        _tell(self._line, "advance", stack, step)

    def show(self, stack: int, line: Tree) -> None:
        _tell(self._line, "show", stack, line)

    def note(self, words: str, last: bool = False) -> None:
        _tell(self._line, "note", words, last)

    def stage(self, words: str) -> None:
        _tell(self._line, "stage", words)

    def say(self, sentence: str) -> None:
        _tell(self._line, "say", sentence)


def _tell(line: Connection, *words: object) -> None:
    try:
        line.send(words)
    except OSError:
        os._exit(1)  # nobody listens any more


def toil(labour: Labour, line: Connection, stop: Any, how_to_go_on: str) -> None:
    """What a hand does: one stack after the other, as it is told to, until the line is closed."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            index = line.recv()
        except (EOFError, OSError):
            return
        signals = StopSignals(how_to_go_on)
        try:
            labour(index, Telling(line, stop, signals), signals)
        except (Refusal, OSError, MemoryError) as problem:
            _tell(line, "failed", problem)
        except Exception:
            _tell(line, "failed", RuntimeError(traceback.format_exc()))
        else:
            _tell(line, "done")


def _leave_with_parent() -> None:
    """A hand whose parent is gone has nobody to work for, and may stand in the way of whoever resumes the run."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a hand is always started by a parent"
    parent.join()
    os._exit(1)
