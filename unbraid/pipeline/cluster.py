"""Carry out stages on a cluster: hand each to a job somewhere, watch its lease, and hand it out again if it is lost.

What starts a job, and says that it ended, is a `Cluster` (`ray_cluster.py`, `slurm.py`). All else goes through a folder
that both sides reach, the cache itself or a store: a worker's lease also says how far it is, and a note of the driver's
asks workers to stop. So a job may outlive its driver, and whoever resumes the run waits for it.
"""

import json
import os
import platform
import signal
import tempfile
import threading
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import torch

from unbraid.config import JsonDict
from unbraid.config.plugins import used_by
from unbraid.errors import Lost, Stopped, UserError
from unbraid.pipeline.executors import Executor, Needs
from unbraid.pipeline.stage import Stage, make, versions
from unbraid.progress import Progress, TaskProgress
from unbraid.signals import StopSignals
from unbraid.storage import leases as leasing
from unbraid.storage.cache import Cache
from unbraid.storage.checksums import is_sealed
from unbraid.storage.leases import Lease, Leases, Watch, is_alive, is_free, open_url
from unbraid.storage.store import LeasedCache, Store, Superseded

POLL_SECONDS = 0.1
"""Between two looks at jobs."""
LOOK_SECONDS = 0.5
"""Between two looks at a lease."""
MOST_LOSSES = 3
"""So many times is a stage lost without getting any further; then the run ends."""
MOST_AT_ONCE = 1024
"""Stages that are handed out; the rest waits here."""
KEPT_LOGS, KEPT_SAID = 20, 100
"""What a lease says at most of what its worker told."""
KEEP_SECONDS = 60.0
"""Between two times that a worker without a shared disk saves what it has so far to the store."""
NOTES = ".drivers"


@dataclass(frozen=True)
class Job:
    """A stage to make, and all that whoever makes it must know; small enough to be sent anywhere."""

    stage: Stage
    needs: Needs
    root: str
    """Where stages and leases are: the folder of the cache, or the address of a store."""
    shared: bool
    """Whether `root` is a cache that every worker sees under this path."""
    driver: str
    holder: str
    over: int
    """The lease that nobody holds any more, for all the driver knows."""
    lease_seconds: float
    directory: str
    """Where the driver runs: paths in a configuration may be relative to it."""
    resume_command: str
    versions: tuple[str, ...]
    """Those that a stage's key stands for."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job: `held` and `superseded` are somebody else's work."""

    what: Literal["made", "held", "superseded", "failed"]
    words: JsonDict = field(default_factory=dict)
    """What was told last."""
    problem: Exception | None = None


class Cluster(ABC):
    """Machines that run jobs."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """About how many jobs of one thread run side by side."""

    @abstractmethod
    def open(self) -> None:
        """Reach it, if it is not reached yet."""

    @abstractmethod
    def check_room(self, name: str, needs: Needs) -> None:
        """Refuse what no machine of it can ever run."""

    @abstractmethod
    def submit(self, job: Job) -> Any:
        """Have `work(job)` run somewhere, as soon as there is room; whatever it is known by."""

    @abstractmethod
    def outcome(self, handle: Any) -> Outcome | None:
        """What became of it, None as long as it waits or runs; raises `Lost` where nobody knows."""

    @abstractmethod
    def end(self, handles: Sequence[Any]) -> None:
        """End these at once."""

    @abstractmethod
    def close(self) -> None:
        """Leave it."""


# The worker's side


def work(job: Job) -> Outcome:
    """What a job does, wherever it runs: take the lease, make the stage, hand it in."""
    told = _Told()
    try:
        _check_place(job)
        torch.set_num_threads(job.needs.threads)
        return Outcome(_work(job, told), told.words())
    except (UserError, OSError, MemoryError) as problem:
        return Outcome("failed", told.words(), problem)
    except Exception:
        return Outcome("failed", told.words(), RuntimeError(traceback.format_exc()))


def _check_place(job: Job) -> None:
    """That what is made here is what the driver means, and is put where the driver looks."""
    if job.versions != versions():
        there, here = (" and ".join(each) for each in (job.versions, versions()))
        raise UserError(f"a worker has unbraid and torch {here}, the driver {there}; accepted: the same versions")
    with suppress(OSError):
        os.chdir(job.directory)
    if _note_of(job) is None:
        raise UserError(
            f"a worker does not see {job.root}, where the run's stages are; accepted: a folder on a disk that all "
            "machines share under this path, or --store URL"
        )


def _work(job: Job, told: "_Told") -> Literal["made", "held", "superseded"]:
    key, leases = job.stage.key, Leases.at(job.root)
    store = None if job.shared else Store(job.root)
    plain = Cache(Path(job.root) if job.shared else _scratch(job.root))
    if is_sealed(plain.folder(key)) if store is None else store.has(key):
        return "made"
    if job.shared and not plain.set_aside_unfinished(key):
        return "held"
    if (lease := leases.take(key, job.holder, job.over)) is None:
        return "held"
    cache = LeasedCache(plain.path, leases=leases, lease=lease, store=store)
    signals = StopSignals(job.resume_command)
    pulse = _Pulse(job, lease, told, signals)
    try:
        with _every(pulse.seconds, pulse.beat), _every(KEEP_SECONDS, cache.keep):
            _pull_inputs(job, cache, told)
            make(job.stage, cache, TaskProgress(told, 0), signals)
    except BaseException as problem:
        if isinstance(problem, Superseded) or not leases.renew(lease, {**told.words(), "free": True}):
            return "superseded"
        raise
    leases.drop(key)  # a last renewal may have come after it was dropped
    return "made"


def _pull_inputs(job: Job, cache: LeasedCache, told: "_Told") -> None:
    for other in job.stage.inputs if cache.store is not None else ():
        if not cache.has(other.key, told.say):
            raise UserError(f"{other.key} is not in {job.root}, and '{job.stage.name}' needs it; run again")


def _scratch(root: str) -> Path:
    """Where a worker without a shared disk keeps stages: one folder a machine, so that inputs are pulled once."""
    return Path(tempfile.gettempdir()) / f"unbraid-{os.getuid()}" / sha256(root.encode()).hexdigest()[:12]


def _note_of(job: Job) -> JsonDict | None:
    """What the driver has to say to its workers; None where there is no such driver."""
    files, path = open_url(job.root)
    try:
        files.invalidate_cache()
        return json.loads(files.cat_file(f"{path}/{NOTES}/{job.driver}.json"))
    except FileNotFoundError:
        return None
    except ValueError:  # it is being written
        return {}


@dataclass
class _Pulse:
    """Renews the lease, and passes on to the stage that it is to stop."""

    job: Job
    lease: Lease
    told: "_Told"
    signals: StopSignals

    @property
    def seconds(self) -> float:
        often = self.job.lease_seconds / leasing.RENEWALS
        return min(often, LOOK_SECONDS) if self.job.shared else often

    def beat(self) -> None:
        if not Leases.at(self.job.root).renew(self.lease, self.told.words()):
            self.signals.received = signal.SIGTERM  # whatever is made from now on is not used
        elif stop := (_note_of(self.job) or {}).get("stop"):
            self.signals.received = int(stop)


@contextmanager
def _every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again beside the work in here; what fails is tried again the next time."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(seconds):
            with suppress(OSError):
                act()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Told(Progress):
    """In a worker: what a stage told, for the lease to say."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._began: int | None = None
        self._step = 0
        self._logs: list[JsonDict] = []
        self._said: list[str] = []
        self._counts = [0, 0]

    def words(self) -> JsonDict:
        """`logs` and `said` are the last of so many."""
        with self._lock:
            place = {"began": self._began, "step": self._step, "counts": list(self._counts)}
            return {**place, "logs": list(self._logs), "said": list(self._said), "time": time.time()}

    def begin(self, index: int, step: int) -> None:
        with self._lock:
            self._began = self._step = step

    def advance(self, index: int, step: int) -> None:
        self._step = step

    def log(self, index: int, line: JsonDict) -> None:
        with self._lock:
            self._logs = [*self._logs, line][-KEPT_LOGS:]
            self._counts[0] += 1

    def note(self, words: str, last: bool = False) -> None:
        return None

    def status(self, words: str) -> None:
        return None

    def say(self, sentence: str) -> None:
        with self._lock:
            self._said = [*self._said, sentence][-KEPT_SAID:]
            self._counts[1] += 1


# The driver's side


@dataclass(frozen=True)
class OnCluster(Executor):
    """Stages are made by the machines of a cluster; a store is for those that share no disk with this one."""

    cluster: Cluster
    store: Store | None = None

    def workers(self, stages: Sequence[Stage], needs: Mapping[str, Needs]) -> int:
        if not stages:
            return 1
        self.cluster.open()
        threads = max(needs[stage.key].threads for stage in stages)
        return max(1, min(len(stages), self.cluster.slots // threads))

    def execute(
        self,
        stages: Sequence[Stage],
        needs: Mapping[str, Needs],
        cache: Cache,
        progress: Progress,
        signals: StopSignals,
    ) -> None:
        if not stages:
            return
        _check_plugins(stages)
        self.cluster.open()
        try:
            for stage in stages:
                self.cluster.check_room(stage.name, needs[stage.key])
            _Driver(self.cluster, self.store, stages, needs, cache, progress, signals).run()
        finally:
            self.cluster.close()

    def fetch(self, stages: Sequence[Stage], cache: Cache, progress: Progress) -> None:
        for stage in stages if self.store is not None else ():
            if not cache.has(stage.key, progress.say):
                progress.status(f"pulling '{stage.name}'")
                if not self.store.pull(stage.key, cache.folder(stage.key), progress.say):  # pyright: ignore[reportOptionalMemberAccess]
                    raise UserError(f"'{stage.name}' is not whole in the store; accepted: to go on, which makes it")


def _check_plugins(stages: Sequence[Stage]) -> None:
    """The machines of a cluster have installed packages, and neither a file nor a notebook of this one."""
    here = [plugin for plugin in used_by(*stages) if plugin.origin != "package"]
    if here:
        raise UserError(
            f"the plugin {here[0].path} was given with --on, and a cluster's machines have not got it; accepted: a "
            "plugin that is an installed package, or a run on this machine"
        )


@dataclass
class _Work:
    """A stage that is handed out, or waits to be."""

    index: int
    stage: Stage
    handles: dict[str, Any] = field(default_factory=dict)
    """Its jobs, by who they are as holders of a lease."""
    submitted: int = 0
    over: int = 0
    losses: int = 0
    lost_at: int = -1
    looked: float = 0.0
    heard: tuple[int, int, int] = (0, 0, 0)
    """Of the lease that was heard last its number, and how many of its lines and sentences."""

    def is_to_be_looked_at(self) -> bool:
        """Whether it is time to, from now on."""
        now = time.monotonic()
        if now - self.looked < LOOK_SECONDS:
            return False
        self.looked = now
        return True


class _Driver:
    """Hands stages out as they become ready, listens to their leases, and keeps the first thing that failed."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store | None,
        stages: Sequence[Stage],
        needs: Mapping[str, Needs],
        cache: Cache,
        progress: Progress,
        signals: StopSignals,
    ) -> None:
        self.cluster, self.store, self.needs = cluster, store, needs
        self.cache, self.progress, self.signals = cache, progress, signals
        self.root = str(cache.path.absolute()) if store is None else store.url
        self.name, self.seconds = uuid.uuid4().hex[:12], leasing.SECONDS
        self.watch = Watch(Leases.at(self.root))
        self.todo = {stage.key: _Work(index, stage) for index, stage in enumerate(stages)}
        self.all, self.told_to_stop = len(stages), False
        self.problem: Exception | None = None

    def run(self) -> None:
        """All of them; the first that fails stops the others, which save."""
        with self._noted(), self.signals.patience():
            try:
                while self.todo and not self._has_stopped():
                    self._submit()
                    for work in list(self.todo.values()):
                        self._look(work)
                    time.sleep(POLL_SECONDS)
            finally:
                self.cluster.end([handle for work in self.todo.values() for handle in work.handles.values()])
        if self.problem is not None:
            raise self.problem
        if self.signals.received is not None:
            done = self.all - len(self.todo)
            raise self.signals.stop(self.signals.received, f"with {done} of {self.all} stages done")

    def _is_stopping(self) -> bool:
        return self.signals.received is not None or self.problem is not None

    def _has_stopped(self) -> bool:
        """Whether to leave: a signal came or something failed, and whoever was at work has saved."""
        if not self._is_stopping():
            return False
        if not self.told_to_stop:
            self.told_to_stop = True
            self._note(self.signals.received or signal.SIGTERM)
        return not any(self._is_saving(work) for work in self.todo.values())

    def _is_saving(self, work: _Work) -> bool:
        if not work.handles:
            return False
        number, words, silent = self.watch.look(work.stage.key)
        return number > 0 and words.get("holder") in work.handles and silent < self.seconds

    def _submit(self) -> None:
        """Every ready stage that nobody has: not we, and no other driver."""
        at_once = sum(bool(work.handles) for work in self.todo.values())
        for work in list(self.todo.values()):
            if work.handles or at_once >= MOST_AT_ONCE or self._is_stopping():
                continue
            ready = not any(other.key in self.todo for other in work.stage.inputs)
            if ready and work.is_to_be_looked_at() and self._is_due(work):
                self._hand_out(work)
                at_once += 1

    def _is_due(self, work: _Work) -> bool:
        """Whether nobody makes it: there is no lease, or it was given back, lost with its holder, or has lapsed."""
        if self._is_there(work.stage.key):
            self._is_done(work)
            return False
        number, words, silent = self.watch.look(work.stage.key)
        if number > work.over and not is_free(words) and silent < self.seconds:
            self._hear(work, number, words)
            return False
        work.over = number
        return True

    def _hand_out(self, work: _Work) -> None:
        holder = f"{self.name}-{work.index}-{work.submitted}"
        self._push_inputs(work.stage)
        job = Job(
            stage=work.stage,
            needs=self.needs[work.stage.key],
            root=self.root,
            shared=self.store is None,
            driver=self.name,
            holder=holder,
            over=work.over,
            lease_seconds=self.seconds,
            directory=str(Path.cwd()),
            resume_command=self.signals.resume_command,
            versions=versions(),
        )
        work.handles[holder] = self.cluster.submit(job)
        work.submitted += 1

    def _push_inputs(self, stage: Stage) -> None:
        """What was made on this machine before, and a worker elsewhere needs."""
        for other in stage.inputs if self.store is not None else ():
            assert self.store is not None
            if not self.store.has(other.key) and self.cache.has(other.key, self.progress.say):
                self.store.push(self.cache.folder(other.key), other.key, 1)

    def _look(self, work: _Work) -> None:
        """At the jobs of a stage, and now and then at its lease."""
        for holder, handle in list(work.handles.items()):
            try:
                outcome = self.cluster.outcome(handle)
            except Lost as problem:
                self._lose(work, holder, problem)
            else:
                if outcome is not None:
                    del work.handles[holder]
                    self._take_in(work, outcome)
        if work.stage.key in self.todo and work.handles and work.is_to_be_looked_at():
            number, words, silent = self.watch.look(work.stage.key)
            self._hear(work, number, words)
            if silent >= self.seconds and work.over < number and not self._is_stopping():
                work.over = number
                name = work.stage.name
                self.progress.say(f"whoever makes '{name}' has said nothing for {silent:.0f} s; it is handed out again")
                self._hand_out(work)

    def _take_in(self, work: _Work, outcome: Outcome) -> None:
        if outcome.what in ("made", "failed"):
            self._hear(work, work.heard[0] or 1, outcome.words)
        if outcome.what == "made" and self._is_there(work.stage.key):
            self._is_done(work)
        elif outcome.what == "failed":
            self.problem = self.problem or outcome.problem
            if isinstance(outcome.problem, Stopped) and self.signals.received is None and not self.told_to_stop:
                self.problem = Lost(f"the machine at work on '{work.stage.name}' stopped it: {outcome.problem}")

    def _lose(self, work: _Work, holder: str, problem: Lost) -> None:
        """A job is gone with its process or its machine: its lease is void, and another takes its place."""
        del work.handles[holder]
        number, words, _ = self.watch.look(work.stage.key)
        if words.get("holder") == holder:
            work.over = number
        step = int(words.get("step", 0))
        work.losses = 1 if step > work.lost_at else work.losses + 1
        work.lost_at, work.looked = max(step, work.lost_at), 0.0
        if work.losses >= MOST_LOSSES:
            kept = f"what was saved is kept; go on with: {self.signals.resume_command}"
            self.problem = self.problem or Lost(f"'{work.stage.name}' was lost {work.losses} times: {problem}; {kept}")
        elif not self._is_stopping():
            self.progress.say(f"'{work.stage.name}' is handed out again: {problem}")

    def _hear(self, work: _Work, number: int, words: JsonDict) -> None:
        """Pass on what the holder of a lease has told since it was last heard."""
        if words.get("began") is None and not words.get("said"):
            return
        before, lines, sentences = work.heard if work.heard[0] == number else (0, 0, 0)
        if before != number and words["began"] is not None:
            self.progress.begin(work.index, words["began"])
        for line in _new(words["logs"], words["counts"][0] - lines):
            self.progress.log(work.index, line)
        for sentence in _new(words["said"], words["counts"][1] - sentences):
            self.progress.say(sentence)
        if words["began"] is not None:
            self.progress.advance(work.index, words["step"])
        work.heard = number, words["counts"][0], words["counts"][1]

    def _is_there(self, key: str) -> bool:
        return is_sealed(self.cache.folder(key)) if self.store is None else self.store.has(key)

    def _is_done(self, work: _Work) -> None:
        self.progress.advance(work.index, work.stage.steps)
        self.cluster.end(list(work.handles.values()))
        if self.store is None and work.submitted > 1:
            self.cache.drop_attempts(work.stage.key)
        del self.todo[work.stage.key]

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """In here workers find a note of this driver's, by which they know that they are at the right place."""
        files, path = open_url(self.root)
        files.makedirs(f"{path}/{NOTES}", exist_ok=True)
        if self.store is None:
            _remove_old_notes(Path(self.root) / NOTES)
        self._note(0)
        try:
            yield
        finally:
            with suppress(OSError):
                files.rm_file(f"{path}/{NOTES}/{self.name}.json")
                files.rmdir(f"{path}/{NOTES}")

    def _note(self, stop: int) -> None:
        files, path = open_url(self.root)
        note = {"stop": stop, "process": os.getpid(), "machine": platform.node()}
        files.pipe_file(f"{path}/{NOTES}/{self.name}.json", json.dumps(note).encode())


def _new(words: Sequence[Any], count: int) -> Sequence[Any]:
    return words[-count:] if count > 0 else ()


def _remove_old_notes(folder: Path) -> None:
    """Those of drivers of this machine that were killed."""
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError):
            note = json.loads(path.read_bytes())
            if note["machine"] == platform.node() and not is_alive(int(note["process"])):
                path.unlink()
