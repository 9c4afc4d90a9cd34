"""Convert a dictionary and check it while it is done: read one of another library, or write one for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from unbraid.config import JsonDict, suggest
from unbraid.dictionaries.formats import FORMATS
from unbraid.dictionaries.formats.format import Check, Format, probe, verify
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.storage.checksums import names
from unbraid.storage.files import folder_beside

LISTED = 6
"""So many names of what a folder holds are told."""
WEIGHTS = (".safetensors", ".npz", ".json")
"""A path to a file with one of these endings may stand for the folder that it is in."""


@dataclass(frozen=True)
class Written:
    """What was written: where, what was folded on the way, and how well it agrees; no check where nothing changes."""

    path: Path
    notes: tuple[str, ...]
    check: Check | None


def read_checked(path: Path) -> Stack:
    """The dictionaries at a path, whatever format they are in; `metadata` has where from, what was folded, and the
    check."""
    name, path = _find(path)
    format = FORMATS[name]
    stack, metadata = format.read(path)
    check = _check(format, stack, path, path.name)
    if check is None:
        return replace(stack, metadata=metadata)
    source: JsonDict = {"format": name, "path": str(path), "notes": metadata.pop("notes", []), **check.to_dict()}
    return replace(stack, metadata={**metadata, "source": {**source, "check": check.sentence()}})


def export(stack: Stack, name: str, path: Path, metadata: JsonDict | None = None) -> Written:
    """Write a dictionary in a format; the files appear when they have been read back and agree.

    `metadata` is what is told of it beside the stack's own. A file that is there already and is another is kept, and
    the export refused.
    """
    return export_several({"": (stack, metadata or {})}, name, path)[0]


def export_several(parts: Mapping[str, tuple[Stack, JsonDict]], name: str, path: Path) -> list[Written]:
    """Write dictionaries with their metadata, each into a folder of this name within the path: all, or none."""
    format, written = find_format(name), list[Written]()
    with folder_beside(path) as temporary:
        for part, (stack, metadata) in parts.items():
            folder = temporary / part
            folder.mkdir(exist_ok=True)
            notes = format.write(stack, folder, {**stack.metadata, **metadata})
            check = _check(format, stack, folder, (path / part).name)
            written.append(Written(path / part, tuple(notes), check))
        _put(temporary, path)
    return written


def find_format(name: str) -> Format:
    """A format that is written."""
    written = [known for known, format in FORMATS.items() if type(format).write is not Format.write]
    if name not in FORMATS:
        raise UserError(f"there is no format '{name:.40}'; {suggest(name, written)}")
    return FORMATS[name]


def _check(format: Format, stack: Stack, path: Path, name: str) -> Check | None:
    """Hold the format's formula, on the files, against the stack."""
    if stack.members != 1:
        return None
    double, x = probe(stack)
    ran = format.run(path, x)
    return None if ran is None else verify(double, ran, x, f"{name} ({format.title})")


def _find(path: Path) -> tuple[str, Path]:
    """The format of a path; of a file in a folder that only makes sense whole, the folder."""
    places = [path, path.parent] if path.is_file() and path.suffix in WEIGHTS else [path]
    for place in places:
        found = [name for name, format in FORMATS.items() if format.reads(place)]
        if place != path:  # a file in a folder: what it is a part of
            found = [name for name in found if path.name in [Path(file).name for file in FORMATS[name].files]]
        if len(found) > 1:
            raise UserError(
                f"{place} holds dictionaries of {' and of '.join(FORMATS[name].title for name in found)}; accepted: a "
                "folder with one, or the file with the weights"
            )
        if found:
            return found[0], place
    raise UserError(_not_known(path))


def _not_known(path: Path) -> str:
    if not path.exists():
        return f"{path}: there is no such file or folder; accepted: a dictionary's, or a hub id as owner/name"
    kinds = "; ".join(f"{format.holds} ({format.title})" for format in FORMATS.values() if format.files or format.holds)
    if path.is_file():
        return f"{path} is no file of a dictionary that is known; accepted: {kinds}"
    if pickled := sorted(path.glob("*.pt")):
        return f"{path} holds {pickled[0].name}, a pickle, which is read only if it is named: accepted: {pickled[0]}"
    found = names(path)[:LISTED]
    return f"{path} holds {', '.join(found) or 'nothing'}, and no dictionary that is known; accepted: {kinds}"


def _put(temporary: Path, path: Path) -> None:
    """Move what was written to its place; what is there already must be the same."""
    files = sorted(file.relative_to(temporary) for file in temporary.rglob("*") if file.is_file())
    for file in files:
        there = path / file
        if there.exists() and there.read_bytes() != (temporary / file).read_bytes():
            raise UserError(f"{there} exists already and is another; accepted: another folder (-o)")
    for file in files:
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (temporary / file).replace(path / file)
