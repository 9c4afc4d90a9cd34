"""The cache of stages: each in a folder named by its key, shared by all runs beside it.

    cache/model-1f0c…/     being made: a lock beside it, checkpoints and a log in it
    cache/model-1f0c…/     made: sealed by its checksums, never written again

A stage that is asked for and is there is verified, byte by byte, once a process. One that is damaged is set aside under
another name, and made again. Runs get copies, so that no file belongs to two runs.

Processes of one machine wait for each other at a file lock; what a cluster makes is held by a lease
(`storage/leases.py`), which whoever works here respects.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.storage.checksums import is_sealed, names, seal, verify
from unbraid.storage.files import CHECKSUMS, Damaged, read_bytes, read_checksums, remove_leftovers, write_bytes
from unbraid.storage.leases import LEASES, SECONDS, Leases, Watch

POLL_SECONDS = 0.2
OWN = ("checkpoints", "tracking")
"""What only the making of a stage needs; it goes when the stage is made."""


@dataclass(frozen=True)
class Cache:
    """The folder of stages."""

    path: Path
    _verified: set[str] = field(default_factory=set, compare=False)

    def folder(self, key: str) -> Path:
        return self.path / key

    def has(self, key: str, say: Callable[[str], None]) -> bool:
        """Whether the stage is there, whole; a damaged one is set aside, and that is said."""
        folder = self.folder(key)
        if key in self._verified:
            return True
        if not is_sealed(folder):
            return False
        try:
            if verify(folder).get("key") != key:
                raise Damaged(f"{folder / CHECKSUMS} is damaged: it is the list of another stage")
        except Damaged as problem:
            say(f"{problem}; the cached stage is set aside as {self._set_aside(folder)} and made again")
            return False
        self._verified.add(key)
        self._drop_own(key)  # what a process that was killed after it had sealed the stage left
        self._lock(key).unlink(missing_ok=True)
        return True

    def lacks_checksums(self, key: str) -> bool:
        """Whether something is there that is neither made nor being made: it has no checkpoint to go on from."""
        folder = self.folder(key)
        return not is_sealed(folder) and not (folder / "checkpoints").is_dir() and bool(names(folder))

    @contextmanager
    def making(self, key: str, stopped: Callable[[], bool]) -> Iterator[Path]:
        """The stage's folder, for one process at a time; whoever comes second waits."""
        folder = self.folder(key)
        folder.mkdir(parents=True, exist_ok=True)
        lock, watch = FileLock(self._lock(key)), Watch(Leases.at(str(self.path)))
        while not self._begins(key, lock, watch):
            if stopped():
                raise UserError(f"stopped while another process makes {folder}")
            time.sleep(POLL_SECONDS)
        try:
            remove_leftovers(folder)
            yield folder
        finally:
            self._lock(key).unlink(missing_ok=True)  # before the release: whoever waits for it notices
            lock.release()

    def _begins(self, key: str, lock: FileLock, watch: Watch) -> bool:
        """Whether nobody else makes the stage: no process of this machine, and none of a cluster that is still there.

        What that left half made is gone on with.
        """
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as problem:
            raise UserError(
                f"cannot lock {self.folder(key)}: {problem.strerror}; accepted: a folder that can be written"
            ) from None
        if (self.path / LEASES / key).is_dir():
            number, _, silent = watch.look(key)
            if watch.leases.take(key, "a run on this machine", number if silent >= SECONDS else 0) is None:
                lock.release()
                return False
            if not names(self.folder(key)):
                self.begin_with_earlier(key, self.folder(key))
        return True

    def finish(self, key: str, facts: JsonDict) -> None:
        """Seal what the stage left, and drop what only its making needed."""
        seal(self.folder(key), {"of": "stage", "key": key, **facts}, without=OWN)
        self._drop_own(key)
        if (self.path / LEASES / key).is_dir():
            self.drop_attempts(key)
        self._verified.add(key)

    def attempt(self, key: str, number: int) -> Path:
        """Where whoever has the lease of this number makes the stage."""
        return self.path / f".{key}.{number}"

    def attempts(self, key: str) -> list[Path]:
        """The folders of attempts at a stage that is made under leases, the newest last."""
        found = [path for path in self.path.glob(f".{key}.*") if path.suffix[1:].isdigit()]
        return sorted(found, key=lambda path: int(path.suffix[1:]))

    def begin_with_earlier(self, key: str, folder: Path) -> None:
        """Copy what the last other attempt has left; checkpoints are verified by whoever reads them.

        Checkpoints first: a log may be longer than at its checkpoint, never shorter. Whoever wrote it may still write:
        what vanishes meanwhile is passed over.
        """
        for earlier in [path for path in self.attempts(key) if path != folder][-1:]:
            paths = [path for path in earlier.rglob("*") if path.is_file() and path.name != CHECKSUMS]
            for path in sorted(paths, key=lambda path: "checkpoints" not in path.parts):
                target = folder / path.relative_to(earlier)
                with suppress(OSError):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)

    def drop_attempts(self, key: str) -> None:
        """Nobody needs leases on a stage that is there, nor what was made of it meanwhile."""
        Leases.at(str(self.path)).drop(key)
        for path in self.attempts(key):
            shutil.rmtree(path, ignore_errors=True)

    def set_aside_unfinished(self, key: str) -> bool:
        """Make way for attempts where a run of this machine left a stage half made; False while one works on it."""
        folder, lock = self.folder(key), FileLock(self._lock(key))
        if not folder.is_dir() or is_sealed(folder):
            return True
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        try:
            if folder.is_dir() and not is_sealed(folder):
                shutil.rmtree(self.attempt(key, 0), ignore_errors=True)
                folder.rename(self.attempt(key, 0))
        finally:
            self._lock(key).unlink(missing_ok=True)
            lock.release()
        return True

    def copy(self, key: str, target: Path) -> None:
        """Copy the files of a stage into a run, each as one act."""
        for name in read_checksums(self.folder(key))["files"]:
            write_bytes(target / name, read_bytes(self.folder(key) / name))

    def _drop_own(self, key: str) -> None:
        for name in OWN:
            shutil.rmtree(self.folder(key) / name, ignore_errors=True)

    def _lock(self, key: str) -> Path:
        return self.path / f".{key}.lock"

    def _set_aside(self, folder: Path) -> Path:
        number = 1
        while (aside := folder.with_name(f"damaged-{folder.name}-{number}")).exists():
            number += 1
        folder.rename(aside)
        return aside
