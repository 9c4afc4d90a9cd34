"""What a person sees while a run works: a bar with time left on a terminal, plain lines elsewhere, or nothing."""

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from unbraid.config import Tree

SECONDS_BETWEEN_LINES = 5.0


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

    @abstractmethod
    def show(self, stack: int, line: Tree) -> None:
        """A line was logged."""

    @abstractmethod
    def say(self, sentence: str) -> None:
        """Something a person should know."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _words(self, stack: int, line: Tree) -> str:
        """Means over members: the costs, L0 and MMCS."""
        numbers = {**line["terms"], "L0": line["l0"], "MMCS": line["mmcs"]}
        shown = "  ".join(f"{name} {sum(values) / len(values):.3g}" for name, values in numbers.items())
        steps = self._works[stack][0]
        return f"stack {stack + 1}/{len(self._works)}  step {line['step']}/{steps}  {shown}"


class Silent(Watcher):
    """Shows nothing."""

    def show(self, stack: int, line: Tree) -> None:
        return None

    def say(self, sentence: str) -> None:
        return None


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

    def show(self, stack: int, line: Tree) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES or line["step"] == self._works[stack][0]:
            self._last = now
            self._print(f"{self._words(stack, line)}  {self._left(now)}")

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


class Bar(Watcher):
    """A bar with time left, and the newest numbers beside it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        columns = (BarColumn(24), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, TextColumn("{task.description}", markup=False), console=console)
        self._task = self._progress.add_task("starting", total=1.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def advance(self, stack: int, step: int) -> None:
        super().advance(stack, step)
        self._progress.update(self._task, completed=self.share)

    def show(self, stack: int, line: Tree) -> None:
        self._progress.update(self._task, description=self._words(stack, line))

    def say(self, sentence: str) -> None:
        self._progress.update(self._task, description=sentence)
