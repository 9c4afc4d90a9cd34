"""Do the work of several stacks at once, each in a process of its own with one thread.

Small models keep no two threads busy, and so many of them are taught side by side. What is written is what one process
would have written; a signal to the parent lets every hand finish its step and save, and a hand whose parent is gone
stops by itself.
"""

import multiprocessing
import os
import queue
import signal
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.queues import Queue
from typing import Any

from unbraid.config import Tree
from unbraid.errors import Refusal
from unbraid.progress import Watcher
from unbraid.signals import StopSignals

Labour = Callable[[int, Watcher, StopSignals], None]
"""Does the work of one stack; it must be possible to send it to another process."""
PATIENCE = 0.2
"""Seconds between two looks at whether a signal came or a hand was lost."""


def work_together(
    labour: Labour, works: Sequence[tuple[int, float]], hands: int, watcher: Watcher, signals: StopSignals
) -> None:
    """All stacks, at most `hands` at a time; the first that fails stops the others and is raised here."""
    context = multiprocessing.get_context("spawn")
    todo, told, stop = context.Queue(), context.Queue(), context.Value("i", 0)
    for index in range(len(works)):
        todo.put(index)
    crew = [
        context.Process(target=_toil, args=(labour, todo, told, stop, signals.how_to_go_on, os.getpid()), daemon=True)
        for _ in range(min(hands, len(works)))
    ]
    for hand in crew:
        hand.start()
    try:
        with signals.patience():
            problem = _listen(works, crew, told, stop, watcher, signals)
    finally:
        stop.value = stop.value or signal.SIGTERM
        for hand in crew:
            hand.join()
    if problem is not None:
        raise problem


def _listen(
    works: Sequence[tuple[int, float]], crew: list[Any], told: Queue, stop: Any, watcher: Watcher, signals: StopSignals
) -> Exception | None:
    """Pass on what the hands tell until all have gone; the first thing that went wrong."""
    reached: dict[int, int] = {}
    problem: Exception | None = None
    while True:
        if signals.received is not None:
            stop.value = signals.received
        gone = not any(hand.is_alive() for hand in crew)
        try:
            what, *words = told.get(timeout=PATIENCE)
        except queue.Empty:
            if gone:
                lost = problem is None and any(hand.exitcode for hand in crew)
                return RuntimeError("a process that worked on a stack was killed") if lost else problem
            continue
        match what:
            case "advance":
                reached[words[0]] = words[1]
                watcher.advance(*in_order(works, reached))
            case "failed":
                problem, stop.value = problem or words[0], stop.value or signal.SIGTERM
            case "show":
                watcher.show(*words)
            case "note":
                watcher.note(*words)
            case "stage":
                watcher.stage(*words)
            case _:
                watcher.say(*words)


def in_order(works: Sequence[tuple[int, float]], reached: dict[int, int]) -> tuple[int, int]:
    """The stack and step that one process alone would have reached with as much work done."""
    done = sum(step * works[stack][1] for stack, step in reached.items())
    for stack, (steps, cost) in enumerate(works):
        if done < steps * cost:
            return stack, int(done / cost)
        done -= steps * cost
    return len(works) - 1, works[-1][0]


class _Telling(Watcher):
    """Tells the parent, and passes on its signal; a hand whose parent is gone has nobody to work for."""

    def __init__(self, told: Queue, parent: int, stop: Any, signals: StopSignals) -> None:
        super().__init__()
        self._told, self._parent, self._stop, self._signals = told, parent, stop, signals

    def advance(self, stack: int, step: int) -> None:
        if os.getppid() != self._parent:
            os._exit(1)
        self._signals.received = self._stop.value or None
        self._told.put(("advance", stack, step))

    def show(self, stack: int, line: Tree) -> None:
        self._told.put(("show", stack, line))

    def note(self, words: str, last: bool = False) -> None:
        self._told.put(("note", words, last))

    def stage(self, words: str) -> None:
        self._told.put(("stage", words))

    def say(self, sentence: str) -> None:
        self._told.put(("say", sentence))


def _toil(labour: Labour, todo: Queue, told: Queue, stop: Any, how_to_go_on: str, parent: int) -> None:
    """What a hand does: one stack after the other, until none is left or it is told to stop."""
    import torch

    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent says when
    while not stop.value:
        try:
            index = todo.get(timeout=PATIENCE)
        except queue.Empty:
            return
        try:
            signals = StopSignals(how_to_go_on)
            labour(index, _Telling(told, parent, stop, signals), signals)
        except Refusal as problem:
            told.put(("failed", problem))
            return
        except Exception:
            told.put(("failed", RuntimeError(traceback.format_exc())))
            return
