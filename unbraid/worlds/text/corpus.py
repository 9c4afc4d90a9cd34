"""Read a text, and say which part of it teaches and which part is kept to be predicted.

primer       a small text of our own, in this package
wikitext-2   real-data/wikitext-2, as `make real-data` leaves it
a folder     train.txt, and valid.txt to be predicted
a file       its last tenth, by characters and from the next line on, is to be predicted
"""

from dataclasses import dataclass
from pathlib import Path

from unbraid.config import nearest
from unbraid.errors import REAL_DATA, Missing, Refusal

NAMED = {"primer": Path(__file__).with_name("primer.txt"), "wikitext-2": Path(REAL_DATA) / "wikitext-2"}
TRAINING, VALIDATION = "train.txt", "valid.txt"
KEPT = 0.1
"""The share of a single file that is kept to be predicted."""


@dataclass(frozen=True)
class Corpus:
    training: str
    validation: str


def files(text: str) -> list[Path]:
    """What is read: one file, or that to learn from and that to be predicted."""
    path = NAMED.get(text, Path(text))
    if path.is_dir():
        found = [path / TRAINING, path / VALIDATION]
        if absent := [file.name for file in found if not file.is_file()]:
            raise Refusal(f"the text {path} has no {absent[0]}; accepted: a folder with {TRAINING} and {VALIDATION}")
        return found
    if not path.is_file():
        named = nearest(text, NAMED)
        raise Missing(f"there is no text '{path}'; {named}, a file, or a folder with {TRAINING} and {VALIDATION}", path)
    return [path]


def read(text: str, characters: int | None = None, validation: int | None = None) -> Corpus:
    """Both parts, and of each no more than its first so many characters."""
    parts = [_read(file) for file in files(text)]
    first, second = parts if len(parts) > 1 else _cut(parts[0])
    return Corpus(first[:characters], second[:validation])


def _read(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise Refusal(f"the text {file} is not UTF-8 ({problem.reason}); accepted: a text in UTF-8") from None
    except OSError as problem:
        raise Refusal(f"cannot read the text {file}: {problem.strerror}") from None
    if not text.strip():
        raise Refusal(f"the text {file} is empty; accepted: a text with at least one word")
    return text


def _cut(text: str) -> tuple[str, str]:
    """In two, where a line begins; or anywhere, where there is no such line."""
    place = int(len(text) * (1 - KEPT))
    line = text.find("\n", place, -1) + 1
    return text[: line or place], text[line or place :]
