"""Leases: who makes a stage where no file lock reaches, each with a number that only grows.

    cache/.leases/KEY/000001.json   the first who made it: who it is, how far it is
    cache/.leases/KEY/000002.json   who took its place: whoever has a lower number may hand nothing in any more

The next number is taken by creating its file, which only one can. Whoever has it works in a folder of its own,
`cache/.KEY.NUMBER`, and writes the lease anew every few seconds. A lease that has not changed for so long, by the clock
of whoever watches, may be superseded: no two clocks are compared, and a wrong guess costs work, never a result. A stage
is handed in by one rename, by whoever still has the highest number, and never over one that is there.
"""

import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from unbraid.config import JsonDict
from unbraid.errors import UserError

LEASES = ".leases"
SECONDS = 30.0
"""A lease that has not been renewed for so long may be superseded."""
RENEWALS = 6
"""So many times is it renewed meanwhile."""


@dataclass(frozen=True)
class Lease:
    """The right to hand in a stage, for as long as its number is the highest."""

    key: str
    number: int
    holder: str


@dataclass(frozen=True)
class Leases:
    """The leases of the stages in one folder, of any file system that fsspec knows."""

    files: Any
    """The file system, of fsspec."""
    path: str

    @classmethod
    def at(cls, url: str) -> "Leases":
        """Those of a folder, by its path or address."""
        files, path = open_url(url)
        return cls(files, f"{path}/{LEASES}")

    def newest(self, key: str) -> int:
        """The highest number that was taken; 0 where none was."""
        self.files.invalidate_cache()
        try:
            names = self.files.ls(f"{self.path}/{key}", detail=False)
        except FileNotFoundError:
            return 0
        stems = [str(name).rpartition("/")[2].removesuffix(".json") for name in names]
        return max((int(stem) for stem in stems if stem.isdigit()), default=0)

    def take(self, key: str, holder: str, over: int = 0) -> Lease | None:
        """The next lease, or None where somebody has one whose number is past `over`, and has not given it back."""
        number = self.newest(key)
        if number > over and not is_free(self.read(key, number)):
            return None
        self.files.makedirs(f"{self.path}/{key}", exist_ok=True)
        words = _encoded({"holder": holder, **_place()})
        try:
            self.files.pipe_file(self._file(key, number + 1), words, mode="create")
        except FileExistsError:
            return None
        return Lease(key, number + 1, holder)

    def renew(self, lease: Lease, words: JsonDict) -> bool:
        """Say that its holder is still there, and how far; whether the lease is still the newest."""
        if not self.holds(lease):
            return False
        words = {"holder": lease.holder, **_place(), **words}
        self.files.pipe_file(self._file(lease.key, lease.number), _encoded(words))
        return True

    def holds(self, lease: Lease) -> bool:
        return self.newest(lease.key) == lease.number

    def read(self, key: str, number: int) -> JsonDict | None:
        """What the holder of a lease said last; None while it is being written, or where it is gone."""
        try:
            value = json.loads(self.files.cat_file(self._file(key, number)))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def drop(self, key: str) -> None:
        """Nobody needs a lease on a stage that is there."""
        with suppress(FileNotFoundError):
            self.files.rm(f"{self.path}/{key}", recursive=True)
        with suppress(OSError):
            self.files.rmdir(self.path)

    def keys(self) -> list[str]:
        """The stages that somebody has, or had, a lease on."""
        self.files.invalidate_cache()
        try:
            return [str(name).rpartition("/")[2] for name in self.files.ls(self.path, detail=False)]
        except FileNotFoundError:
            return []

    def _file(self, key: str, number: int) -> str:
        return f"{self.path}/{key}/{number:06d}.json"


def is_free(words: JsonDict | None) -> bool:
    """Whether the holder of a lease gave it back, or was a process of this machine that is gone."""
    if words is None:
        return False
    if words.get("free"):
        return True
    return words.get("machine") == platform.node() and not is_alive(int(words.get("process", 0)))


@dataclass
class Watch:
    """Leases as somebody sees them who looks at them again and again."""

    leases: Leases
    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, tuple[int, JsonDict, float]] = field(default_factory=dict)

    def look(self, key: str) -> tuple[int, JsonDict, float]:
        """The newest number, what its holder said last, and for how many seconds it has said nothing else."""
        number, now = self.leases.newest(key), self.clock()
        before, said, since = self._seen.get(key, (0, {}, now))
        words = self.leases.read(key, number) if number else None
        if number != before:
            said, since = words or {}, now
        elif words is not None and words != said:
            said, since = words, now
        self._seen[key] = number, said, since
        return number, said, now - since


def open_url(url: str) -> tuple[Any, str]:
    """The file system of an address or a path, and the path in it; what cannot be opened is one sentence."""
    from fsspec.core import url_to_fs  # here, because listing runs needs no fsspec
    from fsspec.implementations.local import LocalFileSystem

    if "://" not in url:
        return LocalFileSystem(), os.path.abspath(url)  # noqa: PTH100 (a path may hold what fsspec takes for an address)
    try:
        files, path = url_to_fs(url)
    except (ValueError, ImportError, OSError) as problem:
        raise UserError(f"{url!r:.80} cannot be opened: {problem}; accepted: what fsspec opens here") from None
    return files, str(path).rstrip("/")


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _place() -> JsonDict:
    return {"machine": platform.node(), "process": os.getpid()}


def _encoded(words: JsonDict) -> bytes:
    return json.dumps(words).encode()
