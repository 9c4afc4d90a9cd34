"""Do the work of several stacks at once, each in a process of its own with one thread.

Small models keep no two threads busy, and so many of them are taught side by side. What is written is what one process
would have written; a signal to the parent lets every hand finish its step and save, a second one ends them at once, and
a hand whose parent is gone stops by itself. Each hand has a line of its own and no lock is shared: whoever is killed
while holding one would leave the others waiting for ever.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from unbraid.errors import Lost
from unbraid.progress import Watcher
from unbraid.signals import NUMBERS, StopSignals
from unbraid.sweeps.hand import Labour, toil

PATIENCE = 0.2
"""Seconds between two looks at whether a signal came."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What libraries read, when they are first imported, to know how many threads they may have."""


def work_together(
    labour: Labour, works: Sequence[tuple[int, float]], hands: int, watcher: Watcher, signals: StopSignals
) -> None:
    """All stacks, at most `hands` at a time; the first that fails stops the others and is raised here."""
    context = multiprocessing.get_context("spawn")
    foreman = _Foreman(works, context.Value("i", 0, lock=False), watcher, signals)
    with signals.patience():
        try:
            with _held_back(), _one_thread_each():
                for _ in range(min(hands, len(works))):
                    ours, theirs = context.Pipe()
                    process = context.Process(target=toil, args=(labour, theirs, foreman.stop, signals.how_to_go_on))
                    process.start()
                    theirs.close()  # so that the line is dead when the hand is
                    foreman.crew.append(_Hand(process, ours))  # pyright: ignore[reportArgumentType]
            foreman.listen()
        except BaseException:
            for hand in foreman.crew:
                hand.process.kill()
            raise
        finally:
            foreman.dismiss()
    if foreman.problem is not None:
        raise foreman.problem
    if signals.received is not None:
        raise signals.stop(signals.received, f"with {foreman.done} of {len(works)} stacks done")


@contextmanager
def _held_back() -> Iterator[None]:
    """Signals reach us when this is over, and never the processes started meanwhile: the parent tells them."""
    resource_tracker.ensure_running()  # whoever starts first starts it, and it would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """The processes started in here have one thread in every library: more would only wait for each other."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@dataclass
class _Hand:
    """A process, the line to it, and the stack it works on."""

    process: SpawnProcess
    line: Connection
    stack: int | None = None

    def take(self, stack: int | None) -> None:
        self.stack = stack
        if stack is not None:
            with suppress(OSError):  # one that is gone is missed when it is listened to
                self.line.send(stack)

    def fate(self) -> str:
        """What became of a process whose line is dead."""
        self.process.join()
        code = self.process.exitcode or 0
        memory = ", as happens when memory runs out" if code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{memory}" if code < 0 else f"ended with exit code {code}"


@dataclass
class _Foreman:
    """Gives the stacks out, passes on what the hands tell, and keeps the first thing that went wrong."""

    works: Sequence[tuple[int, float]]
    stop: Any
    watcher: Watcher
    signals: StopSignals
    crew: list[_Hand] = field(default_factory=list)
    reached: dict[int, int] = field(default_factory=dict)
    done: int = 0
    problem: Exception | None = None

    def listen(self) -> None:
        """Until no hand is at work."""
        todo = iter(range(len(self.works)))
        for hand in self.crew:
            hand.take(next(todo, None))
        while busy := {hand.line: hand for hand in self.crew if hand.stack is not None}:
            self.stop.value = self.stop.value or self.signals.received or 0
            for line in wait(list(busy), PATIENCE):
                if self._hear(hand := busy[line]):  # pyright: ignore[reportArgumentType] (a line is what we wait for)
                    hand.take(None if self.stop.value else next(todo, None))

    def dismiss(self) -> None:
        for hand in self.crew:
            hand.line.close()
        for hand in self.crew:
            hand.process.join()

    def _hear(self, hand: _Hand) -> bool:
        """Take in one thing that a hand tells; whether its stack has ended, well or not."""
        what, *words = self._words(hand)
        match what:
            case "done":
                self.done += 1
            case "failed":
                self.problem, self.stop.value = self.problem or words[0], self.stop.value or signal.SIGTERM
            case "advance":
                self.reached[words[0]] = words[1]
                self.watcher.advance(*in_order(self.works, self.reached))
            case "show":
                self.watcher.show(*words)
            case "note":
                self.watcher.note(*words)
            case "stage":
                self.watcher.stage(*words)
            case _:
                self.watcher.say(*words)
        return what in ("done", "failed")

    def _words(self, hand: _Hand) -> tuple[Any, ...]:
        try:
            return hand.line.recv()
        except (EOFError, OSError):
            found = f"the process at work on stack {(hand.stack or 0) + 1} {hand.fate()}"
            kept = f"what was saved is kept; go on with: {self.signals.how_to_go_on}"
            return "failed", Lost(f"{found}; {kept}")


def in_order(works: Sequence[tuple[int, float]], reached: dict[int, int]) -> tuple[int, int]:
    """The stack and step that one process alone would have reached with as much work done."""
    done = sum(step * works[stack][1] for stack, step in reached.items())
    for stack, (steps, cost) in enumerate(works):
        if done < steps * cost:
            return stack, int(done / cost)
        done -= steps * cost
    return len(works) - 1, works[-1][0]
