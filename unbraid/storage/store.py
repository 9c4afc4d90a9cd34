"""Stages made elsewhere: under a lease, handed in as one act; through a store where machines share no disk.

    STORE/KEY/000002/…              the files of a stage, as the second who took its lease made them
    STORE/KEY/000002/checksums.json written last: without it the stage is not there
    STORE/KEY/000002/checkpoints/   what its holder has so far, for whoever takes its place

The address of a store is whatever fsspec opens: s3://bucket/folder, gs://…, sftp://…, file://…
"""

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.storage.cache import OWN, Cache
from unbraid.storage.checksums import is_sealed, seal, verify
from unbraid.storage.files import CHECKSUMS, Damaged, remove_leftovers
from unbraid.storage.leases import Lease, Leases, open_url


class Superseded(UserError):
    """Somebody else has taken over this stage: what was made of it here is not handed in."""


@dataclass(frozen=True)
class Store:
    """A folder of stages that several machines reach."""

    url: str

    def has(self, key: str) -> bool:
        """Whether the stage is there; its bytes are verified when they are pulled."""
        return any(self._is_whole(key, number) for number in self._numbers(key))

    def push(self, folder: Path, key: str, number: int) -> None:
        """Write a sealed stage, its checksums last; what was there of earlier attempts goes."""
        files, path = open_url(self.url)
        names = sorted(_files(folder), key=lambda name: name == CHECKSUMS)
        for name in names:
            self._put(folder / name, f"{path}/{key}/{number:06d}/{name}")
        unmade = [f"{other:06d}" for other in self._numbers(key) if other < number and not self._is_whole(key, other)]
        for name in (*(f"{number:06d}/{own}" for own in OWN), *unmade):
            with suppress(FileNotFoundError):
                files.rm(f"{path}/{key}/{name}", recursive=True)

    def keep(self, folder: Path, key: str, number: int) -> None:
        """Write what there is of a stage at work: checkpoints first, for a log may be longer than at its checkpoint."""
        _, path = open_url(self.url)
        names = [name for name in _files(folder) if name != CHECKSUMS]
        for name in sorted(names, key=lambda name: not name.startswith("checkpoints/")):
            with suppress(FileNotFoundError):  # a newer checkpoint has taken its place
                self._put(folder / name, f"{path}/{key}/{number:06d}/{name}")

    def pull(self, key: str, target: Path, say: Callable[[str], None]) -> bool:
        """Put the stage into this folder, verified; of several the one with the highest number that is whole."""
        files, path = open_url(self.url)
        for number in reversed(self._numbers(key)):
            if not self._is_whole(key, number):
                continue
            temporary = target.with_name(f".{key}.{uuid.uuid4().hex}.part")
            self._get(f"{path}/{key}/{number:06d}", temporary)
            try:
                if verify(temporary).get("key") != key:
                    raise Damaged(f"{temporary / CHECKSUMS} is the list of another stage")
            except Damaged:
                shutil.rmtree(temporary, ignore_errors=True)
                say(f"{key} is damaged in {self.url} and removed there; it is made again")
                files.rm(f"{path}/{key}/{number:06d}", recursive=True)
                continue
            put_in_place(temporary, target)
            return True
        return False

    def pull_unfinished(self, key: str, target: Path) -> None:
        """What the newest attempt has kept; checkpoints are verified by whoever reads them."""
        _, path = open_url(self.url)
        for number in self._numbers(key)[-1:]:
            self._get(f"{path}/{key}/{number:06d}", target, without=CHECKSUMS)

    def _numbers(self, key: str) -> list[int]:
        files, path = open_url(self.url)
        files.invalidate_cache()
        try:
            names = [str(name).rpartition("/")[2] for name in files.ls(f"{path}/{key}", detail=False)]
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def _is_whole(self, key: str, number: int) -> bool:
        files, path = open_url(self.url)
        return bool(files.exists(f"{path}/{key}/{number:06d}/{CHECKSUMS}"))

    def _put(self, source: Path, target: str) -> None:
        files, _ = open_url(self.url)
        files.makedirs(target.rpartition("/")[0], exist_ok=True)
        files.put_file(str(source), target)

    def _get(self, source: str, target: Path, without: str = "") -> None:
        files, _ = open_url(self.url)
        for name in files.find(source):
            rest = str(name).removeprefix(f"{source}/")
            if rest != without:
                (target / rest).parent.mkdir(parents=True, exist_ok=True)
                files.get_file(str(name), str(target / rest))


@dataclass(frozen=True, kw_only=True)
class LeasedCache(Cache):
    """The cache for whoever makes one stage under a lease: in a folder of its own, handed in at the end.

    With a store this is a folder of the machine's own, and stages come from there and go there.
    """

    leases: Leases
    lease: Lease
    store: Store | None = None

    def has(self, key: str, say: Callable[[str], None]) -> bool:
        return super().has(key, say) or (
            self.store is not None and self.store.pull(key, self.folder(key), say) and super().has(key, say)
        )

    @contextmanager
    def making(self, key: str, stopped: Callable[[], bool]) -> Iterator[Path]:
        """The folder of this attempt, with what the one before has left."""
        own = self.own
        if self.store is not None:
            self.store.pull_unfinished(key, own)
        own.mkdir(parents=True, exist_ok=True)
        self.begin_with_earlier(key, own)
        remove_leftovers(own)
        try:
            yield own
        except BaseException:
            if not self.leases.holds(self.lease):
                shutil.rmtree(own, ignore_errors=True)
            else:
                with suppress(OSError):
                    self.keep()
            raise

    @property
    def own(self) -> Path:
        """Where this attempt works."""
        return self.attempt(self.lease.key, self.lease.number)

    def keep(self) -> None:
        """Save what there is so far where others find it."""
        if self.store is not None and self.own.is_dir() and not is_sealed(self.own):
            self.store.keep(self.own, self.lease.key, self.lease.number)

    def finish(self, key: str, facts: JsonDict) -> None:
        """Seal the attempt, and put it where the stage belongs, if nobody has taken it over."""
        self._check_holds()
        seal(self.own, {"of": "stage", "key": key, **facts}, without=OWN)
        for name in OWN if self.store is not None else ():  # nobody begins with it: another machine pulls it whole
            shutil.rmtree(self.own / name, ignore_errors=True)
        self._check_holds()
        if self.store is not None:
            self.store.push(self.own, key, self.lease.number)
        put_in_place(self.own, self.folder(key))
        self.leases.drop(key)
        self.drop_attempts(key)
        self.has(key, lambda _: None)

    def _check_holds(self) -> None:
        if not self.leases.holds(self.lease):
            raise Superseded(f"another process has taken over {self.lease.key}; what was made of it here is not used")


def put_in_place(made: Path, place: Path) -> None:
    """Rename a sealed folder, as one act; a stage that stands there already stays."""
    try:
        made.rename(place)
    except OSError as problem:
        if not is_sealed(place):
            raise UserError(f"cannot put a stage at {place}: {problem.strerror}; accepted: a shared folder") from None
        shutil.rmtree(made, ignore_errors=True)


def _files(folder: Path) -> list[str]:
    """All files of a folder but for hidden ones, by their path in it."""
    paths = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)]
