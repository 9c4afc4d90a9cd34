"""What a person sees while a run works: a bar with time left on a terminal, plain lines elsewhere, or nothing."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from unbraid.config import Tree

SECONDS_BETWEEN_LINES = 5.0

Told = Callable[[float], None]
"""Told how much of something is done, as a share."""


def unwatched(_share: float) -> None:
    """Nobody is told."""


class Watcher(ABC):
    """Told how the work goes; never asked anything."""

    def __init__(self) -> None:
        self._works: list[tuple[int, float]] = []
        self._done = 0.0

    def plan(self, works: list[tuple[int, float]]) -> None:
        """The stacks to come: steps, and the cost of one."""
        self._works = works

    def advance(self, stack: int, step: int) -> None:
        """A stack has reached this step."""
        before = sum(steps * cost for steps, cost in self._works[:stack])
        self._done = before + step * self._works[stack][1]

    @property
    def share(self) -> float:
        total = sum(steps * cost for steps, cost in self._works)
        return self._done / total if total else 0.0

    def show(self, stack: int, line: Tree) -> None:
        """A line was logged."""
        self.note(self._words(stack, line), line["step"] == self._works[stack][0])

    @abstractmethod
    def note(self, words: str, last: bool = False) -> None:
        """How far it is, in words that the next ones may replace, unless they are the last."""

    @abstractmethod
    def stage(self, words: str) -> None:
        """What is being done now."""

    @abstractmethod
    def say(self, sentence: str) -> None:
        """Something a person should know, and keep."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def _words(self, stack: int, line: Tree) -> str:
        """Means over members: accuracy or perplexity of models, MMCS where there is a truth, L0; and the costs."""
        first = {"loss": "loss", "perplexity": "perplexity", "accuracy": "accuracy", "MMCS": "mmcs", "L0": "l0"}
        numbers = {name: line[key] for name, key in first.items() if line.get(key) is not None}
        said = {"answers"} if "loss" in line else set()
        numbers |= {name: values for name, values in line["terms"].items() if name not in said}
        shown = "  ".join(f"{name} {sum(values) / len(values):.3g}" for name, values in numbers.items())
        steps = self._works[stack][0]
        return f"stack {stack + 1}/{len(self._works)}  step {line['step']}/{steps}  {shown}"


class Silent(Watcher):
    """Shows no progress; what a person should know still goes to standard error."""

    def note(self, words: str, last: bool = False) -> None:
        return None

    def stage(self, words: str) -> None:
        return None

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr)


class Lines(Watcher):
    """Plain lines with time left, a few seconds apart."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._first: tuple[float, float] | None = None
        self._last = float("-inf")

    def advance(self, stack: int, step: int) -> None:
        super().advance(stack, step)
        self._first = self._first or (time.monotonic(), self.share)

    def note(self, words: str, last: bool = False) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES or last:
            self._last = now
            self._print(f"{words}  {self._left(now)}")

    def stage(self, words: str) -> None:
        self._print(words)

    def say(self, sentence: str) -> None:
        self._print(sentence)

    def _left(self, now: float) -> str:
        began, share = self._first or (now, self.share)
        if self.share <= share or self.share >= 1:
            return ""
        seconds = (now - began) / (self.share - share) * (1 - self.share)
        return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s left"

    def _print(self, text: str) -> None:
        self._console.print(text.rstrip(), highlight=False, markup=False, soft_wrap=True)


class _TwoLines(Progress):
    """The bar on one line, the newest numbers on the next, so that both fit a narrow terminal."""

    words = "starting"

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.words, no_wrap=True, overflow="ellipsis")


class Bar(Watcher):
    """A bar with time left, and the newest numbers under it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        left = TextColumn("left", style="progress.remaining")
        columns = (BarColumn(24), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn(), left)
        self._progress = _TwoLines(*columns, console=console)
        self._task = self._progress.add_task("", total=1.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, stack: int, step: int) -> None:
        super().advance(stack, step)
        self._progress.update(self._task, completed=self.share)

    def note(self, words: str, last: bool = False) -> None:
        self._progress.words = words

    def stage(self, words: str) -> None:
        self._progress.words = words
        self._progress.refresh()

    def say(self, sentence: str) -> None:
        self._progress.console.print(Text(sentence), soft_wrap=True)


class OneOfMany(Watcher):
    """A run among several that `whole` shows as one work; `first` is where its stacks begin in the whole plan."""

    def __init__(self, whole: Watcher, first: int) -> None:
        super().__init__()
        self._whole, self._place = whole, first

    def plan(self, works: list[tuple[int, float]]) -> None:
        return None

    def advance(self, stack: int, step: int) -> None:
        self._whole.advance(self._place + stack, step)

    def show(self, stack: int, line: Tree) -> None:
        self._whole.show(self._place + stack, line)

    def note(self, words: str, last: bool = False) -> None:
        self._whole.note(words, last)

    def stage(self, words: str) -> None:
        self._whole.stage(words)

    def say(self, sentence: str) -> None:
        self._whole.say(sentence)
