"""Ctrl-C and SIGTERM: while training they wait until the step is done and saved; elsewhere they stop at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from unbraid.errors import Stopped

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Used as a context, it answers the signals; `received` is the one that came while it was asked to be patient."""

    def __init__(self, resume_command: str) -> None:
        self.resume_command = resume_command
        self.received: int | None = None
        self._patient = False

    @contextmanager
    def patience(self) -> Iterator[None]:
        """In here the first signal is only remembered; whoever works looks at `received` when it can stop well."""
        self._patient = True
        try:
            yield
        finally:
            self._patient = False

    def stop(self, number: int, where: str) -> Stopped:
        return Stopped(number, f"stopped {where}; go on with: {self.resume_command}")

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self._patient and self.received is None:
            self.received = number
        else:
            raise self.stop(number, "at once")

    def __enter__(self) -> Self:
        mine = threading.current_thread() is threading.main_thread()  # no other may answer signals
        self._before = {number: signal.signal(number, self._receive) for number in NUMBERS} if mine else {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
