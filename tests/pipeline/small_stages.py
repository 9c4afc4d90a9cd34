"""Stages of a test's own: importable by worker processes, and quick."""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from unbraid.config import JsonDict
from unbraid.errors import NotFinite
from unbraid.pipeline.stage import Context, Stage
from unbraid.storage.files import write_json


def tell_parent(number: int) -> None:
    """Send a signal to the process that asked for this one, which is not who forked it where a launcher did."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    os.kill(parent.pid or 0, number)


@dataclass(frozen=True)
class Small(Stage):
    """Writes which process made it, into its folder and beside the cache."""

    kind = "small"
    side_by_side = True

    number: int
    beside: str
    needs: tuple[Stage, ...] = ()

    @property
    def config(self) -> JsonDict:
        return {"number": self.number}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return self.needs

    @property
    def steps(self) -> int:
        return 2

    def note(self, word: str) -> None:
        """Leave a file that the test looks for; its content is the process."""
        (Path(self.beside) / f"{word}-{self.number}").write_text(str(os.getpid()))

    def run(self, context: Context) -> None:
        self.note("made")
        write_json(context.folder / "number.json", self.number)
        context.progress.say(f"stage {self.number}")
        context.progress.advance(1)


@dataclass(frozen=True)
class Adds(Small):
    """Adds up the numbers of its inputs."""

    kind = "adds"

    def run(self, context: Context) -> None:
        self.note("made")
        files = [context.of(stage) / "number.json" for stage in self.needs]
        write_json(context.folder / "number.json", sum(int(path.read_text()) for path in files))


@dataclass(frozen=True)
class NotesThreads(Small):
    """Writes how many threads its libraries have."""

    def run(self, context: Context) -> None:
        import numba
        from threadpoolctl import threadpool_info

        most = max(library["num_threads"] for library in threadpool_info())
        (Path(self.beside) / f"threads-{self.number}").write_text(f"{most} {numba.config.NUMBA_NUM_THREADS}")


@dataclass(frozen=True)
class NotFiniteOnce(Small):
    """The second of them has a loss that is not finite."""

    def run(self, context: Context) -> None:
        if self.number == 1:
            raise NotFinite(7, "loss", 0, "; look there")


@dataclass(frozen=True)
class Breaks(Small):
    """Has a bug."""

    def run(self, context: Context) -> None:
        raise KeyError("no such thing")


@dataclass(frozen=True)
class Vanishes(Small):
    """Ends its process, as if by itself or by the system when memory runs out."""

    by_signal: bool = False

    def run(self, context: Context) -> None:
        self.note("begun")
        if self.by_signal:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)


@dataclass(frozen=True)
class EndsAnyway(Small):
    """The first sends the parent a signal; each ends well when it hears of it, as an evaluation does."""

    def run(self, context: Context) -> None:
        self.note("begun")
        if self.number == 0:
            tell_parent(signal.SIGINT)
        while context.signals.received is None:
            time.sleep(0.01)
            context.progress.advance(1)


@dataclass(frozen=True)
class SavesWhenStopped(Small):
    """The first sends the parent a signal; each saves when it hears of it, and says so, as a training does."""

    number_sent: int = signal.SIGTERM

    def run(self, context: Context) -> None:
        self.note("begun")
        if self.number == 0:
            tell_parent(self.number_sent)
        while context.signals.received is None:
            time.sleep(0.01)
            context.progress.advance(1)
        self.note("saved")
        raise context.signals.stop(context.signals.received, f"and saved stage {self.number}")


@dataclass(frozen=True)
class Endless(Small):
    """Goes on until its process is ended, without a word to the parent."""

    def run(self, context: Context) -> None:
        self.note("begun")
        while True:
            time.sleep(0.05)


@dataclass(frozen=True)
class Slow(Small):
    """Takes a second, so that somebody else comes meanwhile."""

    side_by_side = False

    def run(self, context: Context) -> None:
        with (Path(self.beside) / "made").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(1.0)
        write_json(context.folder / "number.json", self.number)


@dataclass(frozen=True)
class Counts(Small):
    """Counts to its steps, saving every one; the first process that makes it stops itself at a step, once."""

    kind = "counts"

    length: int = 40
    seconds: float = 0.02
    frozen_at: int | None = None

    @property
    def steps(self) -> int:
        return self.length

    def run(self, context: Context) -> None:
        saved = context.folder / "checkpoints" / "step.json"
        step = int(saved.read_text()) if saved.is_file() else 0
        context.progress.begin(step)
        self.note(f"begun-{os.getpid()}-at-{step}")
        while step < self.length:
            time.sleep(self.seconds)
            step += 1
            write_json(saved, step)
            context.progress.advance(step)
            if step == self.frozen_at and not (Path(self.beside) / f"frozen-{self.number}").exists():
                self.note("frozen")
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.frozen_at is None and context.signals.received is not None:
                raise context.signals.stop(context.signals.received, f"and saved stage {self.number} at step {step}")
        write_json(context.folder / "number.json", self.number + sum(range(step)))
