"""The cache of stages: each in a folder named by its key, shared by all runs beside it.

    cache/model-1f0c…/     being made: a lock beside it, checkpoints and a log in it
    cache/model-1f0c…/     made: sealed by its checksums, never written again

A stage that is asked for and is there is verified, byte by byte, once a process. One that is damaged is set aside under
another name, and made again. Runs get copies, so that no file belongs to two runs.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.storage.checksums import is_sealed, names, seal, verify
from unbraid.storage.files import CHECKSUMS, Damaged, read_bytes, read_checksums, remove_leftovers, write_bytes

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
        lock = FileLock(self._lock(key))
        while True:
            try:
                lock.acquire(blocking=False)
                break
            except Timeout:
                if stopped():
                    raise UserError(f"stopped while another process makes {folder}") from None
                time.sleep(POLL_SECONDS)
            except OSError as problem:
                raise UserError(
                    f"cannot lock {folder}: {problem.strerror}; accepted: a folder that can be written"
                ) from None
        try:
            remove_leftovers(folder)
            yield folder
        finally:
            self._lock(key).unlink(missing_ok=True)  # before the release: whoever waits for it notices
            lock.release()

    def finish(self, key: str, facts: JsonDict) -> None:
        """Seal what the stage left, and drop what only its making needed."""
        seal(self.folder(key), {"of": "stage", "key": key, **facts}, without=OWN)
        self._drop_own(key)
        self._verified.add(key)

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
