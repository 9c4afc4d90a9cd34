"""What training leaves to resume from: a log, and the last two checkpoints, each bound to its stage by key.

A checkpoint is `step-N.safetensors` with its `step-N.json` (step, key of the stage, facts, checksum of the arrays); the
JSON is written last and makes the checkpoint count. A torn or damaged one is noticed by its checksum and passed over.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.storage.files import (
    Arrays,
    Damaged,
    read_arrays,
    read_bytes,
    read_sealed,
    sha256,
    sha256_of,
    write_sealed,
)
from unbraid.storage.pieces import Piecewise, write_pieces

KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    step: int
    arrays: Mapping[str, np.ndarray | Piecewise]
    facts: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint, key: str) -> Path:
    """Write it, then drop all but the last two, and any later ones: they belong to a past that was damaged."""
    arrays_path = folder / f"step-{checkpoint.step:09d}.safetensors"
    write_pieces(arrays_path, checkpoint.arrays)
    card = {"step": checkpoint.step, "key": key, "facts": checkpoint.facts}
    write_sealed(arrays_path.with_suffix(".json"), {**card, "arrays_sha256": sha256_of(arrays_path)})
    cards = [path for path in sorted(folder.glob("step-*.json"), reverse=True) if path.stem <= arrays_path.stem]
    kept = {path.stem for path in cards[:KEPT]}
    for path in (*folder.glob("step-*.json"), *folder.glob("step-*.safetensors")):
        if path.stem not in kept:
            path.unlink(missing_ok=True)
    return arrays_path


def load_latest(
    folder: Path, key: str, read: Callable[[Path], Arrays] = read_arrays
) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint of this stage that is whole, and a sentence for each one passed over."""
    damaged: list[str] = []
    for name in sorted({path.stem for path in folder.glob("step-*.*")}, reverse=True):
        try:
            return _load(folder / f"{name}.json", key, read), damaged
        except UserError as problem:
            damaged.append(f"{problem}; it is passed over")
    return None, damaged


def _load(path: Path, key: str, read: Callable[[Path], Arrays]) -> Checkpoint:
    if not path.is_file():
        raise Damaged(f"the checkpoint {path.with_suffix('')} has no JSON file: it was not saved whole, or has lost it")
    card, arrays_path = read_sealed(path, "step", "key", "facts", "arrays_sha256"), path.with_suffix(".safetensors")
    if card["key"] != key:
        raise Damaged(f"the checkpoint {path.with_suffix('')} is of another stage ({card['key']:.40})")
    if not arrays_path.is_file() or card["arrays_sha256"] != sha256_of(arrays_path):
        raise Damaged(f"the checkpoint {path.with_suffix('')} is damaged (its checksum does not match)")
    return Checkpoint(card["step"], read(arrays_path), card["facts"])


class Log:
    """A file of one JSON object a line, appended as training goes; `mark` is a point to return to."""

    def __init__(self, path: Path, keep: int) -> None:
        """Open for appending, dropping whatever was written past the first `keep` bytes; a link is not followed."""
        self.path = path
        if path.is_symlink():
            raise UserError(f"{path} is a symbolic link; accepted: a file of its own, so remove the link")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "ab", opener=_without_links)  # noqa: SIM115 (of pathlib none takes an opener)
            self._file.truncate(keep)
        except OSError as problem:
            raise self._error(problem) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a full disk was reported when the line was written
            self._file.close()

    def append(self, line: JsonDict) -> None:
        try:
            self._file.write((json.dumps(line) + "\n").encode())
        except OSError as problem:
            raise self._error(problem) from None

    def mark(self) -> dict[str, Any]:
        """How many bytes are safely written, and their checksum."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            content = self.path.read_bytes()
        except OSError as problem:
            raise self._error(problem) from None
        return {"bytes": len(content), "sha256": sha256(content)}

    def _error(self, problem: OSError) -> UserError:
        return UserError(
            f"cannot write {self.path}: {problem.strerror}; accepted: a folder that can be written, with room to spare"
        )


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def matches_mark(path: Path, mark: dict[str, Any]) -> bool:
    """Whether a log still begins with what it held at this mark."""
    content = path.read_bytes() if path.is_file() else b""
    return sha256(content[: mark["bytes"]]) == mark["sha256"] and len(content) >= mark["bytes"]


def read_log(path: Path) -> list[JsonDict]:
    """Every whole line; a last one still being written is left out."""
    lines = read_bytes(path).split(b"\n")[:-1] if path.is_file() else []
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        raise Damaged(f"{path} is damaged: a line of it is not JSON", path) from None
