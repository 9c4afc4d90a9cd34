"""Mirrors of a run's log in other trackers: TensorBoard, Weights & Biases (offline), trackio. Off by default.

The log in the run directory stays the truth. Every trained member is a run of the tracker, named RUN/KIND/MEMBER, with
a curve for each quantity that is logged. What a mirror raises is said once, and the run goes on without it.

    tensorboard  RUNS/mirrors/tensorboard/RUN/KIND/MEMBER/events…    tensorboard --logdir RUNS/mirrors/tensorboard
    wandb        RUNS/mirrors/wandb/offline-run-…                    wandb sync RUNS/mirrors/wandb/offline-run-…
    trackio      where trackio keeps its projects (TRACKIO_DIR)      trackio show --project unbraid
"""

# pyright: reportMissingImports=false
# (each of these libraries is an extra)

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from typing import Any, ClassVar, Literal, get_args

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.progress import Progress, Task
from unbraid.storage.runs import MIRRORS as FOLDER
from unbraid.storage.runs import Run

MirrorName = Literal["tensorboard", "wandb", "trackio"]
PROJECT = "unbraid"
"""What the project is called in a tracker that has some."""


class Mirror(ABC):
    """A tracker: what it does with one curve after the other, each of one trained member."""

    package: ClassVar[str]
    """What must be installed."""

    def __init__(self, run: Run) -> None:
        self.run, self.config, self.folder = run, run.config(), run.path.parent / FOLDER
        self._open: dict[str, Any] = {}

    def log(self, curve: str, start: int, step: int, numbers: dict[str, float]) -> None:
        """A member's numbers at this step; its training began at `start`, and was not begun before or was stopped."""
        if curve not in self._open:
            self.folder.mkdir(parents=True, exist_ok=True)
            with redirect_stdout(StringIO()):
                self._open[curve] = self.begin(curve, start)
        self.write(self._open[curve], step, numbers)

    def end(self, curve: str) -> None:
        """Nothing more comes of this member."""
        if curve in self._open:
            with redirect_stdout(StringIO()):
                self.close(self._open.pop(curve))

    def end_all(self) -> None:
        for curve in list(self._open):
            self.end(curve)

    def identity(self, curve: str) -> str:
        """The same for a member of this run whenever it is gone on with."""
        words = f"{self.run.facts()['began']} {self.run.name} {curve}"
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    @abstractmethod
    def begin(self, curve: str, start: int) -> Any:
        """Open a run of the tracker."""

    @abstractmethod
    def write(self, opened: Any, step: int, numbers: dict[str, float]) -> None:
        """Add to it."""

    @abstractmethod
    def close(self, opened: Any) -> None:
        """Write what it still holds."""


class TensorBoard(Mirror):
    """A folder of event files for each member; steps that a stopped run made again are shown once."""

    package = "tensorboard"

    def begin(self, curve: str, start: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        folder = self.folder / "tensorboard" / self.run.name / curve
        return SummaryWriter(str(folder), purge_step=start + 1 if folder.exists() else None)

    def write(self, opened: Any, step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            opened.add_scalar(name, value, step)

    def close(self, opened: Any) -> None:
        opened.close()


class Wandb(Mirror):
    """An offline run for each member, in a group of the run's name."""

    package = "wandb"

    def begin(self, curve: str, start: int) -> Any:
        import wandb

        settings = wandb.Settings(silent=True, console="off", disable_git=True)
        names = {"project": PROJECT, "group": self.run.name, "name": curve, "id": self.identity(f"{curve} {start}")}
        where = {"dir": str(self.folder), "mode": "offline", "reinit": "create_new"}
        return wandb.init(**names, **where, config={**self.config, "member": curve}, settings=settings)

    def write(self, opened: Any, step: int, numbers: dict[str, float]) -> None:
        opened.log(numbers, step=step)

    def close(self, opened: Any) -> None:
        opened.finish()


class Trackio(Mirror):
    """A run for each member, in a group of the run's name."""

    package = "trackio"

    def begin(self, curve: str, start: int) -> Any:
        from trackio import Run as Curve  # `trackio.init` would end the run of the member before

        names = {"project": PROJECT, "name": f"{self.run.name}/{curve}", "group": self.run.name}
        return Curve(None, client=None, run_id=self.identity(curve), config={**self.config, "member": curve}, **names)

    def write(self, opened: Any, step: int, numbers: dict[str, float]) -> None:
        opened.log(numbers, step=step)

    def close(self, opened: Any) -> None:
        opened.finish()


MIRRORS: dict[str, type[Mirror]] = {"tensorboard": TensorBoard, "wandb": Wandb, "trackio": Trackio}
assert tuple(MIRRORS) == get_args(MirrorName)


def check_mirrors(names: Sequence[str]) -> None:
    """Raise where the library of a mirror is not installed."""
    for name in names:
        if find_spec(MIRRORS[name].package) is None:
            raise UserError(
                f"mirrors has '{name}', which is not installed here; accepted: `pip install 'unbraid[{name}]'`, or "
                "mirrors without it"
            )


@contextmanager
def mirrored(run: Run, progress: Progress) -> Iterator[Progress]:
    """The progress, which also writes to the mirrors that the run's configuration names."""
    names = run.config().get("mirrors", ())
    if not names:
        yield progress
        return
    check_mirrors(names)
    mirrors = Mirrored(progress, {name: MIRRORS[name](run) for name in names})
    try:
        yield mirrors
    finally:
        mirrors.close()


class Mirrored(Progress):
    """Passes everything on to `shown`, and what is logged to the mirrors too."""

    def __init__(self, shown: Progress, mirrors: dict[str, Mirror]) -> None:
        super().__init__()
        self._shown, self._mirrors = shown, dict(mirrors)
        self._starts: dict[int, int] = {}

    def plan(self, tasks: Sequence[Task], workers: int = 1) -> None:
        self._tasks = list(tasks)
        self._shown.plan(tasks, workers)

    def begin(self, index: int, step: int) -> None:
        self._starts[index] = step
        self._shown.begin(index, step)

    def advance(self, index: int, step: int) -> None:
        self._shown.advance(index, step)
        if step >= self._tasks[index].steps:
            for curve in self._curves(index):
                self._tell(lambda mirror, curve=curve: mirror.end(curve))

    def log(self, index: int, line: JsonDict) -> None:
        self._shown.log(index, line)
        numbers = flat(line)
        for member, curve in enumerate(self._curves(index)):
            own = {name: values[member] for name, values in numbers.items() if isinstance(values[member], float | int)}
            start = self._starts.get(index, 0)
            self._tell(lambda mirror, curve=curve, own=own, start=start: mirror.log(curve, start, line["step"], own))

    def note(self, words: str, last: bool = False) -> None:
        self._shown.note(words, last)

    def status(self, words: str) -> None:
        self._shown.status(words)

    def say(self, sentence: str) -> None:
        self._shown.say(sentence)

    def close(self) -> None:
        self._tell(lambda mirror: mirror.end_all())

    def _curves(self, index: int) -> list[str]:
        task = self._tasks[index]
        return [f"{task.kind}/{member.replace('/', '-')}" for member in task.members]

    def _tell(self, what: Callable[[Mirror], None]) -> None:
        """To every mirror that has not failed."""
        for name, mirror in list(self._mirrors.items()):
            try:
                what(mirror)
            except Exception as problem:  # whatever a library raises must not end hours of training
                del self._mirrors[name]
                self._shown.say(f"the mirror '{name}' failed and the run goes on without it: {problem!r:.200}")


def flat(line: JsonDict) -> dict[str, list[Any]]:
    """A logged line's numbers by name, each with one for every member; of terms by `terms/NAME`."""
    numbers: dict[str, list[Any]] = {}
    for name, values in line.items():
        if isinstance(values, dict):
            numbers |= {f"{name}/{inner}": parts for inner, parts in flat(values).items()}
        elif isinstance(values, list):
            numbers[name] = values
    return numbers
