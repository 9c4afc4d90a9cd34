"""Carry out stages on this machine: in this process, or in worker processes with one thread each.

Small models keep no two threads busy, so many stages are made side by side. What is written is what one process would
have written. A signal to the parent lets every worker finish its step and save, a second one ends them at once, and a
worker whose parent is gone stops by itself. Each worker has a pipe of its own and no lock is shared: whoever is killed
while holding one would leave the others waiting for ever. An executor never knows what a stage does.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from unbraid.config import JsonDict
from unbraid.config.plugins import for_workers, load_for_worker
from unbraid.errors import Lost, UserError
from unbraid.pipeline.stage import Stage, make
from unbraid.progress import Progress, TaskProgress
from unbraid.signals import NUMBERS, StopSignals
from unbraid.storage.cache import Cache

PROCESSES = multiprocessing.get_context("spawn")
"""How workers are started: with nothing of this process's threads."""
POLL_SECONDS = 0.2
"""Between two looks at whether a signal came."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What libraries read, when they are first imported, to know how many threads they may have."""


@dataclass(frozen=True)
class Needs:
    """What a stage takes, wherever it is made."""

    threads: int = 1
    """As many as on this machine: a sum over two threads rounds otherwise than one over one."""
    pooled: bool = False
    """Whether it is made beside others, where this machine makes it."""
    memory: int = 0
    """About the bytes that its members take; 0 where nobody knows."""
    gpus: int = 0


class Executor(ABC):
    """Whoever makes stages: this machine, or a cluster."""

    @abstractmethod
    def workers(self, stages: Sequence[Stage], needs: Mapping[str, Needs]) -> int:
        """How many of these it makes side by side where any are."""

    @abstractmethod
    def execute(
        self,
        stages: Sequence[Stage],
        needs: Mapping[str, Needs],
        cache: Cache,
        progress: Progress,
        signals: StopSignals,
    ) -> None:
        """Make these, inputs before what needs them; `needs` are by key, and `progress` was told of them in order."""

    def fetch(self, stages: Sequence[Stage], cache: Cache, progress: Progress) -> None:
        """Have these in the cache, after they were made, where they were made elsewhere."""


class ThisMachine(Executor):
    """This process, and worker processes beside it."""

    def workers(self, stages: Sequence[Stage], needs: Mapping[str, Needs]) -> int:
        return workers_for(stages, _pooled(needs))

    def execute(
        self,
        stages: Sequence[Stage],
        needs: Mapping[str, Needs],
        cache: Cache,
        progress: Progress,
        signals: StopSignals,
    ) -> None:
        execute(stages, _pooled(needs), cache, progress, signals)


THIS_MACHINE = ThisMachine()


def _pooled(needs: Mapping[str, Needs]) -> frozenset[str]:
    return frozenset(key for key, each in needs.items() if each.pooled)


def pooled_stages(stages: Sequence[Stage]) -> frozenset[str]:
    """The keys of the stages that workers make when all stages of a run are missing, inputs first.

    A sum over two threads rounds otherwise than one over one. So what a run makes with which threads must not depend on
    how much of it was there already, or a run that was killed would end with other bits.
    """
    if torch.get_num_threads() == 1:
        return frozenset()
    todo = {stage.key: stage for stage in stages}
    alone = {stage.key for stage in stages if not stage.can_be_sent}
    pooled: set[str] = set()
    while todo:
        ready = [stage for stage in todo.values() if _is_ready(stage, todo)]
        together = [stage for stage in ready if stage.side_by_side and stage.key not in alone]
        if len(together) < 2:
            del todo[(together or ready)[0].key]
            continue
        while together:  # the pool goes on as long as anything for it is ready
            pooled |= {stage.key for stage in together}
            todo = {key: stage for key, stage in todo.items() if key not in pooled}
            together = [s for s in todo.values() if s.side_by_side and s.key not in alone and _is_ready(s, todo)]
    return frozenset(pooled)


def workers_for(stages: Sequence[Stage], pooled: frozenset[str]) -> int:
    """How many stages run side by side where any do."""
    return max(1, min(torch.get_num_threads(), sum(stage.key in pooled for stage in stages)))


def execute(
    stages: Sequence[Stage], pooled: frozenset[str], cache: Cache, progress: Progress, signals: StopSignals
) -> None:
    """Make these stages, inputs before what needs them, those of `pooled` in worker processes.

    `progress` has been told of them in this order.
    """
    todo = dict(enumerate(stages))
    while todo:
        missing = {stage.key for stage in todo.values()}
        ready = [index for index, stage in todo.items() if _is_ready(stage, missing)]
        if any(todo[index].key in pooled for index in ready):
            for_workers = {index: stage for index, stage in todo.items() if stage.key in pooled}
            finished = _Coordinator(for_workers, missing, cache, progress, signals).run(torch.get_num_threads())
        else:
            index = ready[0]
            make(todo[index], cache, TaskProgress(progress, index), signals)
            finished = [index]
        for index in finished:
            del todo[index]


def _is_ready(stage: Stage, missing: Container[str]) -> bool:
    return all(other.key not in missing for other in stage.inputs)


@dataclass
class _Worker:
    """A process, the pipe to it, and the stage it works on."""

    process: BaseProcess
    pipe: Connection
    index: int | None = None

    def take(self, index: int | None, stage: Stage | None) -> None:
        self.index = index
        if index is not None:
            with suppress(OSError):  # one that is gone is missed when it is listened to
                self.pipe.send((index, stage))

    def end(self) -> str:
        """What became of a process whose pipe is closed."""
        self.process.join()
        code = self.process.exitcode or 0
        memory = ", as happens when memory runs out" if code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{memory}" if code < 0 else f"ended with exit code {code}"


@dataclass
class _Coordinator:
    """Hands stages out as they become ready, passes on what workers report, and keeps the first thing that failed."""

    stages: dict[int, Stage]
    missing: set[str]
    """Keys that are not in the cache yet; a stage is ready when none of its inputs is among them."""
    cache: Cache
    progress: Progress
    signals: StopSignals
    workers: list[_Worker] = field(default_factory=list)
    stop: Any = None
    done: list[int] = field(default_factory=list)
    problem: Exception | None = None

    def run(self, most: int) -> list[int]:
        """All that can be made side by side, at most so many at a time; the first that fails stops the others."""
        self.stop = PROCESSES.Value("i", 0, lock=False)
        self._waiting = dict(self.stages)
        with self.signals.patience():
            try:
                with held_back(), threads_each(1), _without_script():
                    for _ in range(min(most, len(self.stages))):
                        ours, theirs = PROCESSES.Pipe()
                        arguments = (self.cache.path, theirs, self.stop, self.signals.resume_command, for_workers())
                        process = PROCESSES.Process(target=work, args=arguments)
                        process.start()
                        theirs.close()  # so that the pipe is closed when the worker is gone
                        self.workers.append(_Worker(process, ours))  # pyright: ignore[reportArgumentType]
                self._listen()
            except BaseException:
                for worker in self.workers:
                    worker.process.kill()
                raise
            finally:
                self._dismiss()
        if self.problem is not None:
            raise self.problem
        if self.signals.received is not None:
            raise self.signals.stop(self.signals.received, f"with {len(self.done)} of {len(self.stages)} stages done")
        return self.done

    def _listen(self) -> None:
        """Until no worker is busy and nothing more is ready."""
        self._hand_out()
        while busy := {worker.pipe: worker for worker in self.workers if worker.index is not None}:
            self.stop.value = self.stop.value or self.signals.received or 0
            for pipe in wait(list(busy), POLL_SECONDS):
                self._receive(busy[pipe])  # pyright: ignore[reportArgumentType] (a pipe is what we wait for)
            self._hand_out()

    def _hand_out(self) -> None:
        for worker in self.workers:
            if worker.index is None and not self.stop.value and not self.problem:
                ready = (index for index, stage in self._waiting.items() if _is_ready(stage, self.missing))
                if (index := next(ready, None)) is not None:
                    worker.take(index, self._waiting.pop(index))

    def _receive(self, worker: _Worker) -> None:
        """Take in one message of a worker."""
        what, *words = self._message(worker)
        match what:
            case "done":
                assert worker.index is not None
                self.done.append(worker.index)
                self.missing.discard(self.stages[worker.index].key)
                worker.take(None, None)
            case "failed":
                self.problem, self.stop.value = self.problem or words[0], self.stop.value or signal.SIGTERM
                worker.take(None, None)
            case _:
                getattr(self.progress, what)(*words)

    def _message(self, worker: _Worker) -> tuple[Any, ...]:
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            assert worker.index is not None
            name = self.stages[worker.index].name
            kept = f"what was saved is kept; go on with: {self.signals.resume_command}"
            return "failed", Lost(f"the process at work on '{name}' {worker.end()}; {kept}")

    def _dismiss(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join()


@contextmanager
def held_back() -> Iterator[None]:
    """Signals reach us when this is over, and never the processes started meanwhile: the parent tells them."""
    resource_tracker.ensure_running()  # whoever starts first starts it, and it would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def threads_each(number: int) -> Iterator[None]:
    """The processes started in here have so many threads in every library; among others, more than one would wait."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(number)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _without_script() -> Iterator[None]:
    """The processes started in here do not run the user's script again, which need not be guarded by __name__."""
    main, hidden = sys.modules["__main__"].__dict__, ("__spec__", "__file__")
    before = {name: main.pop(name) for name in hidden if name in main}
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(before)


class _PipeProgress(Progress):
    """In a worker: passes everything on to the parent, and takes over its signal."""

    def __init__(self, pipe: Connection, stop: Any, signals: StopSignals) -> None:
        super().__init__()
        self._pipe, self._stop, self._signals = pipe, stop, signals

    def begin(self, index: int, step: int) -> None:
        self._signals.received = self._stop.value or None
        _send(self._pipe, "begin", index, step)

    def advance(self, index: int, step: int) -> None:
        self._signals.received = self._stop.value or None
        _send(self._pipe, "advance", index, step)

    def log(self, index: int, line: JsonDict) -> None:
        _send(self._pipe, "log", index, line)

    def note(self, words: str, last: bool = False) -> None:
        _send(self._pipe, "note", words, last)

    def status(self, words: str) -> None:
        _send(self._pipe, "status", words)

    def say(self, sentence: str) -> None:
        _send(self._pipe, "say", sentence)


def _send(pipe: Connection, *words: object) -> None:
    try:
        pipe.send(words)
    except OSError:
        os._exit(1)  # nobody listens any more


def work(
    cache: Path, pipe: Connection, stop: Any, resume_command: str, plugins: Sequence[tuple[str, str]] = ()
) -> None:
    """What a worker does: one stage after the other, as it is told to, until the pipe is closed."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        load_for_worker(plugins)
    except UserError as problem:
        _send(pipe, "failed", problem)
        return
    while True:
        try:
            index, stage = pipe.recv()
        except (EOFError, OSError):
            return
        signals = StopSignals(resume_command)
        try:
            make(stage, Cache(cache), TaskProgress(_PipeProgress(pipe, stop, signals), index), signals)
        except (UserError, OSError, MemoryError) as problem:
            _send(pipe, "failed", problem)
        except Exception:
            _send(pipe, "failed", RuntimeError(traceback.format_exc()))
        else:
            _send(pipe, "done")


def _leave_with_parent() -> None:
    """A worker whose parent is gone has nobody to work for, and may stand in the way of whoever resumes the run."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is always started by a parent"
    parent.join()
    os._exit(1)
