"""A finished folder ends with `checksums.json`: size and SHA-256 of every file in it, and what the folder holds.

`seal` writes it, `verify` reads every byte again, `check_complete` only looks whether each file is there at its size,
which is what opening a run does; contents are then verified as they are read (`storage/files.py`).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unbraid.storage.files import CHECKSUMS, Damaged, read_bytes, read_checksums, sha256_of, write_sealed

PROGRESS = "progress.json"
"""What a run at work says of itself; gone when it ends."""
NOT_LISTED = (CHECKSUMS, PROGRESS, "lock")


def seal(folder: Path, facts: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    """Write the checksums of all files in the folder but for these of its folders; from now on it is finished."""
    files = {name: _facts(folder / name) for name in names(folder) if name.split("/")[0] not in without}
    write_sealed(folder / CHECKSUMS, {**facts, "files": files})


def is_sealed(folder: Path) -> bool:
    return (folder / CHECKSUMS).is_file()


@contextmanager
def resealing(folder: Path, *changed: str) -> Iterator[None]:
    """In here these files of a finished folder (or all files of such a folder in it) are written anew.

    They are off the list meanwhile, so that whoever is killed in here leaves no file that looks damaged.
    """
    listed = dict(read_checksums(folder))
    kept = {name: facts for name, facts in listed["files"].items() if not is_among(name, changed)}
    write_sealed(folder / CHECKSUMS, {**listed, "files": kept})
    try:
        yield
    except BaseException:
        write_sealed(folder / CHECKSUMS, listed)  # what was not written must not be listed as it is found
        raise
    added = {name: _facts(folder / name) for name in names(folder) if is_among(name, changed)}
    write_sealed(folder / CHECKSUMS, {**listed, "files": {**kept, **added}})


def is_among(name: str, those: Iterable[str]) -> bool:
    """Whether a file is one of those, or in a folder that is."""
    return any(name == other or name.startswith(f"{other}/") for other in those)


def check_complete(folder: Path, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The list of a finished folder whose files, but for these, are all there, at their sizes."""
    listed = read_checksums(folder)
    for name, facts in listed["files"].items():
        path = folder / name
        if is_among(name, but):
            continue
        if not path.is_file():
            raise Damaged(f"{path} is missing: {folder / CHECKSUMS} lists it", path)
        if (size := path.stat().st_size) != facts["bytes"]:
            raise Damaged(f"{path} is damaged: it has {size} bytes and was written with {facts['bytes']}", path)
    return listed


def verify(folder: Path) -> dict[str, Any]:
    """The list of a finished folder in which every byte is as it was written."""
    listed = check_complete(folder)
    for name in listed["files"]:
        read_bytes(folder / name)
    return listed


def names(folder: Path) -> list[str]:
    """All files of a folder, by their path in it, but for hidden ones and those that are never listed."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        path.as_posix()
        for path in paths
        if path.name not in NOT_LISTED and not any(part.startswith(".") for part in path.parts)
    )


def _facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
