"""Read documents from a text: paragraphs of a text file, lines of JSON, or a folder of such files.

*.jsonl   one document a line, its "text"
a folder  its *.txt and *.jsonl, in the order of their names
else      text in UTF-8; a blank line ends a document
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from unbraid.errors import Missing, Refusal

SUFFIXES = (".txt", ".jsonl")
BLOCK = 1 << 20


def documents(path: Path) -> Iterator[str]:
    """Every document that is not empty; a text without any is refused."""
    empty = True
    for file in _files(path):
        for document in _lines_of_json(file) if file.suffix == ".jsonl" else _paragraphs(file):
            empty = False
            yield document
    if empty:
        raise Refusal(f"{path} is empty; accepted: a text with at least one word")


def fingerprint(path: Path) -> str:
    """The checksum of all that is read."""
    whole = hashlib.sha256()
    for file in _files(path):
        with file.open("rb") as opened:
            while block := opened.read(BLOCK):
                whole.update(block)
        whole.update(b"\0")
    return whole.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise Missing(f"{path}: there is no such text; accepted: a text file, a .jsonl file, or a folder of them", path)
    found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not found:
        raise Refusal(f"{path} holds no text; accepted: a folder with {' or '.join(SUFFIXES)} files")
    return found


def _paragraphs(file: Path) -> Iterator[str]:
    paragraph: list[str] = []
    for _, line in _lines(file):
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield "".join(paragraph).strip()
            paragraph = []
    if paragraph:
        yield "".join(paragraph).strip()


def _lines_of_json(file: Path) -> Iterator[str]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str):
            raise Refusal(f'line {number} of {file} is not a document; accepted: a JSON object with "text"')
        if text.strip():
            yield text


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as opened:
            yield from enumerate(opened, 1)
    except UnicodeDecodeError as problem:
        raise Refusal(f"{file} is not UTF-8 ({problem.reason}); accepted: a text in UTF-8") from None
    except OSError as problem:
        raise Refusal(f"cannot read {file}: {problem.strerror}") from None
