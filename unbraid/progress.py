"""What a person sees while a run works: a bar with time left on a terminal, plain lines elsewhere, or nothing.

`Recorded` also writes it to a file about once a second, for whoever watches the run from another process.

Work is a list of tasks, each with a name a person knows ("top-k · seed 3 · training"), a kind, a number of steps and a
guess of the seconds a step takes. Time left is the sum over the tasks to come of guess × what that kind of task has
really taken so far against its guess, over the tasks that run side by side, and at least that of the longest task:

    rate of all    = (taken + PRIOR) / (guessed + PRIOR)
    rate of a kind = (taken by it + PRIOR · rate of all) / (guessed of it + PRIOR)

A step that took ten times as long as most of its kind (one that compiles something) counts for itself alone.
"""

import html
import math
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.errors import one_line

SECONDS_BETWEEN_LINES = 5.0
PRIOR = 5.0
"""Seconds of guessed work that must be measured before a rate counts more than the one it corrects."""

ONE_OFF = 10.0
"""So many times as long as the median of its kind, a step is no measure of those to come."""
SECONDS_BETWEEN_RECORDS = 1.0
SECONDS_BETWEEN_PICTURES = 0.2
CURVE_POINTS = 200
"""So many of the lines that a task logged last are recorded."""
BINS = 8
"""So many for each doubling of what a step takes against its guess."""

ReportShare = Callable[[float], None]
"""Called with how much of something is done, from 0 to 1."""


def ignore_share(_share: float) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Task:
    """A piece of work, as progress knows it."""

    name: str
    kind: str
    steps: int
    seconds_per_step: float
    """A guess; only its ratio to other tasks of the same kind matters once one of them has begun."""
    members: tuple[str, ...] = ()
    """Of a training, the names of what is trained, in the order in which its log has their numbers."""

    @property
    def seconds(self) -> float:
        return self.steps * self.seconds_per_step


class _Measured:
    """What steps of one kind have taken against their guess, in bins of the ratio of both."""

    def __init__(self) -> None:
        self._bins: dict[int, tuple[float, float]] = {}

    def add(self, taken: float, guessed: float) -> None:
        number = round(BINS * math.log2(max(taken, 1e-9) / guessed))
        before = self._bins.get(number, (0.0, 0.0))
        self._bins[number] = before[0] + taken, before[1] + guessed

    def totals(self) -> tuple[float, float]:
        """Seconds taken and guessed, without steps that took far longer than the median one."""
        half, median = sum(guessed for _, guessed in self._bins.values()) / 2, 0
        for number in sorted(self._bins):
            median, half = number, half - self._bins[number][1]
            if half <= 0:
                break
        kept = [sums for number, sums in self._bins.items() if number <= median + BINS * math.log2(ONE_OFF)]
        return sum(taken for taken, _ in kept), sum(guessed for _, guessed in kept)


class TimeLeft:
    """How long the tasks to come will take, by what their kinds have taken so far."""

    def __init__(self, tasks: Sequence[Task], workers: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks, self._workers, self._clock = tasks, workers, clock
        self._reached: dict[int, tuple[float, int]] = {}
        self._measured: dict[str, _Measured] = {}

    def begin(self, index: int, step: int) -> None:
        """A task begins its work at this step: time is taken from here on."""
        self._reached[index] = self._clock(), step

    def advance(self, index: int, step: int) -> None:
        """A task has reached this step; where it was not seen to begin, it begins here."""
        now, task = self._clock(), self._tasks[index]
        then, before = self._reached.get(index, (now, step))
        self._reached[index] = now, step
        if step > before and task.seconds_per_step:
            measured = self._measured.setdefault(task.kind, _Measured())
            measured.add(now - then, (step - before) * task.seconds_per_step)

    def share(self) -> float:
        """How much of the guessed work is done."""
        total = sum(task.seconds for task in self._tasks)
        done = sum(step * self._tasks[index].seconds_per_step for index, (_, step) in self._reached.items())
        return min(1.0, done / total) if total else 0.0

    def seconds(self) -> float | None:
        """None as long as nothing has been measured."""
        if not self._measured:
            return None
        totals = {kind: measured.totals() for kind, measured in self._measured.items()}
        taken, guessed = (sum(parts) for parts in zip(*totals.values(), strict=True))
        overall = (taken + PRIOR) / (guessed + PRIOR)
        rates = {kind: (taken + PRIOR * overall) / (guessed + PRIOR) for kind, (taken, guessed) in totals.items()}
        left = [self._left(index, rates.get(task.kind, overall)) for index, task in enumerate(self._tasks)]
        unfinished = sum(
            1 for index, task in enumerate(self._tasks) if self._reached.get(index, (0, 0))[1] < task.steps
        )
        together = max(1, min(self._workers, unfinished))
        return max(sum(left) / together, max(left))

    def _left(self, index: int, rate: float) -> float:
        """Seconds left of one task; of one at work, less what has passed since its last step."""
        task = self._tasks[index]
        if index not in self._reached:
            return task.seconds * rate
        then, step = self._reached[index]
        left = max(0, task.steps - step) * task.seconds_per_step * rate
        return max(0.0, left - (self._clock() - then))


class Progress(ABC):
    """Hears how the work goes; is never asked anything."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._time = TimeLeft([])

    def plan(self, tasks: Sequence[Task], workers: int = 1) -> None:
        """The tasks to come, and how many of them run side by side."""
        self._tasks = list(tasks)
        self._time = TimeLeft(self._tasks, workers)

    def begin(self, index: int, step: int) -> None:
        """A task begins its work at this step: 0, or that of its checkpoint."""
        self._time.begin(index, step)

    def advance(self, index: int, step: int) -> None:
        """A task has reached this step."""
        self._time.advance(index, step)

    def log(self, index: int, line: JsonDict) -> None:
        """A task logged a line: means over members are shown."""
        task = self._tasks[index]
        self.note(f"{task.name} · step {line['step']}/{task.steps}  {summary_of(line)}", line["step"] == task.steps)

    @abstractmethod
    def note(self, words: str, last: bool = False) -> None:
        """How far it is, in words that the next ones may replace, unless they are the last."""

    @abstractmethod
    def status(self, words: str) -> None:
        """What is being done now."""

    @abstractmethod
    def say(self, sentence: str) -> None:
        """Something a person should know, and keep."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def summary_of(line: JsonDict) -> str:
    """The means of a logged line in words."""
    return "  ".join(f"{name} {mean:.3g}" for name, mean in means_of(line).items())


def means_of(line: JsonDict) -> dict[str, float]:
    """Means over members: accuracy or perplexity of models, MMCS where there is a truth, L0; and the loss terms."""
    first = {"loss": "loss", "perplexity": "perplexity", "accuracy": "accuracy", "MMCS": "mmcs", "L0": "l0"}
    numbers = {name: line[key] for name, key in first.items() if line.get(key) is not None}
    shown_already = {"answers"} if "loss" in line else set()
    numbers |= {name: values for name, values in line["terms"].items() if name not in shown_already}
    return {name: sum(values) / len(values) for name, values in numbers.items()}


class Silent(Progress):
    """Shows no progress; what a person should know still goes to standard error."""

    def note(self, words: str, last: bool = False) -> None:
        return None

    def status(self, words: str) -> None:
        return None

    def say(self, sentence: str) -> None:
        print(one_line(sentence), file=sys.stderr)


class Lines(Progress):
    """Plain lines with time left, a few seconds apart."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._last = float("-inf")

    def note(self, words: str, last: bool = False) -> None:
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_LINES or last:
            self._last = now
            self._print(f"{words}  {time_words(self._time.seconds())}")

    def status(self, words: str) -> None:
        self._print(words)

    def say(self, sentence: str) -> None:
        self._print(one_line(sentence))

    def _print(self, text: str) -> None:
        self._console.print(text.rstrip(), highlight=False, markup=False, soft_wrap=True)


def time_words(seconds: float | None) -> str:
    if not seconds:
        return ""
    return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s left"


class _TwoLines(rich_progress.Progress):
    """The bar on one line, the newest numbers on the next, so that both fit a narrow terminal."""

    words = "starting"

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.words, no_wrap=True, overflow="ellipsis")


class Bar(Progress):
    """A bar with time left, and the newest numbers under it."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        left = rich_progress.TextColumn("{task.description}", style="progress.remaining")
        columns = (rich_progress.BarColumn(24), rich_progress.TaskProgressColumn(), rich_progress.TimeElapsedColumn())
        self._progress = _TwoLines(*columns, left, console=console)
        self._task = self._progress.add_task("", total=1.0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, index: int, step: int) -> None:
        super().advance(index, step)
        left = time_words(self._time.seconds())
        self._progress.update(self._task, completed=self._time.share(), description=left)

    def note(self, words: str, last: bool = False) -> None:
        self._progress.words = words

    def status(self, words: str) -> None:
        self._progress.words = words
        self._progress.refresh()

    def say(self, sentence: str) -> None:
        self._progress.console.print(Text(one_line(sentence)), soft_wrap=True)


class Notebook(Progress):
    """A bar in the output of a notebook's cell, replaced in place, with the newest numbers beside it."""

    def __init__(self) -> None:
        from IPython.display import display  # a notebook has it

        super().__init__()
        self._words, self._shown = "starting", float("-inf")
        shown = display(self._picture(), raw=True, display_id=True)
        assert shown is not None, "what has an id can be updated"
        self._display = shown

    def __exit__(self, *_: object) -> None:
        self._show(time.monotonic())

    def advance(self, index: int, step: int) -> None:
        super().advance(index, step)
        self._refresh()

    def note(self, words: str, last: bool = False) -> None:
        self._words = words
        self._refresh()

    def status(self, words: str) -> None:
        self._words = words
        self._show(time.monotonic())

    def say(self, sentence: str) -> None:
        print(one_line(sentence))

    def _refresh(self) -> None:
        if (now := time.monotonic()) - self._shown >= SECONDS_BETWEEN_PICTURES:
            self._show(now)

    def _show(self, now: float) -> None:
        self._shown = now
        self._display.update(self._picture(), raw=True)

    def _picture(self) -> dict[str, str]:
        share = self._time.share()
        words = f"{share:.0%}  {time_words(self._time.seconds())}  {self._words}"
        bar = f'<progress max="1" value="{share:.4f}" style="width: 16em"></progress>'
        return {"text/html": f"<div>{bar} {html.escape(words)}</div>", "text/plain": words}


class OneOfMany(Progress):
    """A run among several that `whole` shows as one work; `first` is where its tasks begin in the whole plan."""

    def __init__(self, whole: Progress, first: int) -> None:
        super().__init__()
        self._whole, self._first = whole, first

    def plan(self, tasks: Sequence[Task], workers: int = 1) -> None:
        return None

    def begin(self, index: int, step: int) -> None:
        self._whole.begin(self._first + index, step)

    def advance(self, index: int, step: int) -> None:
        self._whole.advance(self._first + index, step)

    def log(self, index: int, line: JsonDict) -> None:
        self._whole.log(self._first + index, line)

    def note(self, words: str, last: bool = False) -> None:
        self._whole.note(words, last)

    def status(self, words: str) -> None:
        self._whole.status(words)

    def say(self, sentence: str) -> None:
        self._whole.say(sentence)


class Recorded(Progress):
    """Passes everything on to `shown`, and while it is entered gives `write` a record of it, at most once a second.

    A thread writes, so that also a step of minutes leaves a record that says what is at work. A record has the share
    of the work that is done, the seconds left (None at first), how many tasks are done, and of one task at work (the
    same until it is done, where several are) its name, the means it logged last, and a curve of those before.
    """

    def __init__(
        self, shown: Progress, write: Callable[[JsonDict], None], seconds: float = SECONDS_BETWEEN_RECORDS
    ) -> None:
        super().__init__()
        self._shown, self._write, self._seconds = shown, write, seconds
        self._lock, self._changed, self._ended = threading.Lock(), threading.Event(), threading.Event()
        self._curves: dict[int, deque[JsonDict]] = {}
        self._current: int | None = None
        self._done: set[int] = set()
        self._words = "starting"
        self._thread = threading.Thread(target=self._keep_writing, daemon=True)

    def plan(self, tasks: Sequence[Task], workers: int = 1) -> None:
        self._shown.plan(tasks, workers)
        with self._lock:
            super().plan(tasks, workers)
        self._changed.set()

    def begin(self, index: int, step: int) -> None:
        self._shown.begin(index, step)
        with self._lock:
            super().begin(index, step)
            self._is_at_work(index)

    def advance(self, index: int, step: int) -> None:
        self._shown.advance(index, step)
        with self._lock:
            super().advance(index, step)
            self._is_at_work(index)
            if step >= self._tasks[index].steps:
                self._done.add(index)

    def log(self, index: int, line: JsonDict) -> None:
        self._shown.log(index, line)
        with self._lock:
            points = self._curves.setdefault(index, deque(maxlen=CURVE_POINTS))
            points.append({"step": line["step"], **means_of(line)})
            self._is_at_work(index)

    def note(self, words: str, last: bool = False) -> None:
        self._shown.note(words, last)

    def status(self, words: str) -> None:
        self._shown.status(words)
        self._words = words
        self._changed.set()

    def say(self, sentence: str) -> None:
        self._shown.say(sentence)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._changed.set()
        self._thread.join()

    def record(self) -> JsonDict:
        """What is known now."""
        with self._lock:
            at_work = self._current is not None and self._current not in self._done
            curve = list(self._curves.get(-1 if self._current is None else self._current, ()))
            return {
                "share": self._time.share(),
                "seconds_left": self._time.seconds() if self._tasks else None,
                "task": self._tasks[self._current].name if self._current is not None and at_work else self._words,
                "tasks": {"done": len(self._done), "all": len(self._tasks)},
                "line": curve[-1] if curve else {},
                "curve": curve,
            }

    def _is_at_work(self, index: int) -> None:
        if self._current is None or self._current in self._done:
            self._current = index
            self._curves = {other: points for other, points in self._curves.items() if other not in self._done}
        self._changed.set()

    def _keep_writing(self) -> None:
        while self._changed.wait() and not self._ended.is_set():
            self._changed.clear()
            self._write(self.record())
            self._ended.wait(self._seconds)


@dataclass(frozen=True)
class TaskProgress:
    """The progress of one task, for whoever works on it."""

    progress: Progress
    index: int

    def begin(self, step: int) -> None:
        self.progress.begin(self.index, step)

    def advance(self, step: int) -> None:
        self.progress.advance(self.index, step)

    def log(self, line: JsonDict) -> None:
        self.progress.log(self.index, line)

    def note(self, words: str) -> None:
        self.progress.note(words)

    def status(self, words: str) -> None:
        self.progress.status(words)

    def say(self, sentence: str) -> None:
        self.progress.say(sentence)


def for_terminal(quiet: bool) -> Progress:
    """A bar on a terminal or in a notebook, lines elsewhere, or nothing."""
    console = Console(stderr=True)
    if quiet:
        return Silent()
    return Notebook() if console.is_jupyter else Bar(console) if console.is_terminal else Lines(console)


def for_notebook_or_terminal(quiet: bool) -> Progress:
    """The same, but nothing elsewhere: for functions of Python."""
    shown = for_terminal(quiet)
    return Silent() if isinstance(shown, Lines) else shown
