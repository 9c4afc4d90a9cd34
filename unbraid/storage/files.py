"""Write files as one act and read them back verified; a failure is one sentence that names the file.

A folder that is finished has a `checksums.json` (`storage/checksums.py`). Whoever reads a file that one of the folders
above it lists gets the bytes that were written, or a sentence that says which file is damaged.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as tensors_from_bytes
from safetensors.numpy import save as tensors_to_bytes

from unbraid.errors import UserError

Arrays = dict[str, np.ndarray]

CHECKSUMS = "checksums.json"
DEEPEST = 3
"""So many folders above a file are searched for a list of checksums."""


class Damaged(UserError):
    """A file is not as it was written: changed, cut short, or gone."""

    def __init__(self, sentence: str, path: Path | None = None) -> None:
        """`path` is the file, for whoever knows what to do about it."""
        super().__init__(sentence)
        self.path = path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def sha256_of(path: Path) -> str:
    """The checksum of a file, however large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the file as one act; a failure leaves the old file and says in one sentence what stopped it."""
    write_parts(path, [content], len(content))


def write_parts(path: Path, parts: Iterable[bytes | memoryview], size: int) -> None:
    """The same of content that comes in parts, of so many bytes in all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush_folder(path.parent)
    except OSError as problem:
        raise UserError(
            f"cannot write {path} ({size / 1e6:.1f} MB): {problem.strerror}; accepted: a folder that can be "
            "written, with room to spare"
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_bytes(path: Path) -> bytes:
    """The file's bytes, held against the checksum of the finished folder it is in, where there is one."""
    content = _read(path)
    for folder in list(path.absolute().parents)[:DEEPEST]:
        if (folder / CHECKSUMS).is_file():
            expected = read_checksums(folder)["files"].get(path.absolute().relative_to(folder).as_posix())
            if expected is not None and expected["sha256"] != sha256(content):
                raise Damaged(f"{path} is damaged: its checksum is not the one in {folder / CHECKSUMS}", path)
    return content


_READ: dict[tuple[str, int, int, int, int], dict[str, Any]] = {}


def read_checksums(folder: Path) -> dict[str, Any]:
    """The list of a finished folder, verified; read once a process as long as it does not change."""
    path = folder / CHECKSUMS
    try:
        facts = path.stat()
    except OSError as problem:
        raise Damaged(f"cannot read {path}: {problem.strerror}", path) from None
    seen = str(path), facts.st_ino, facts.st_ctime_ns, facts.st_mtime_ns, facts.st_size
    if seen not in _READ:
        _READ[seen] = read_sealed(path, "files")
    return _READ[seen]


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A new folder to write into, beside the path where it shall be; whatever is still in it at the end is gone.

    So are folders above that were made for it and stay empty.
    """
    made = [folder for folder in path.absolute().parents if not folder.exists()]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.mkdir(parents=True)
        yield temporary
    except OSError as problem:
        raise UserError(f"cannot write {path}: {problem.strerror}; accepted: a folder that can be written") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    return (json.dumps(_without_nan(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    return _parsed(path, read_bytes(path))


def read_object(path: Path, *names: str) -> dict[str, Any]:
    """A JSON object that has at least these names."""
    return _with_names(path, read_json(path), names)


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """A JSON object with a checksum of itself, for what changes while its folder is not finished."""
    write_json(path, {**value, "sha256": sha256(json_bytes(value))})


def read_sealed(path: Path, *names: str) -> dict[str, Any]:
    """What `write_sealed` wrote, byte for byte, with at least these names."""
    content = _read(path)
    value = _with_names(path, _parsed(path, content), ("sha256", *names))
    expected = value.pop("sha256")
    if not _is_sealed(content, value, expected):
        raise Damaged(f"{path} is damaged: it does not match its own checksum", path)
    return value


def _is_sealed(content: bytes, value: dict[str, Any], expected: Any) -> bool:
    try:
        return expected == sha256(json_bytes(value)) and content == json_bytes({**value, "sha256": expected})
    except (UnicodeEncodeError, RecursionError):  # half a character, or thousands of brackets: JSON, but not ours
        return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise Damaged(f"cannot read {path}: {problem.strerror}", path) from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    write_bytes(path, tensors_to_bytes({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def read_arrays(path: Path) -> Arrays:
    content = read_bytes(path)
    try:
        return tensors_from_bytes(content)
    except Exception:  # safetensors raises its own error type for every kind of damage
        raise Damaged(f"{path} is damaged: it is not a safetensors file", path) from None


def remove_leftovers(folder: Path) -> None:
    """Delete what writers that were killed left behind; only for whoever holds the folder's lock."""
    for path in folder.rglob(".*.part"):
        with suppress(OSError):
            path.unlink()


def _parsed(path: Path, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise Damaged(f"{path} is damaged: it is not JSON", path) from None


def _with_names(path: Path, value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(names) <= value.keys():
        raise Damaged(f"{path} is damaged; accepted: a JSON object with {', '.join(names)}", path)
    return value


def _flush_folder(folder: Path) -> None:
    """Make the rename itself last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what is not finite is written as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list | tuple) else value
