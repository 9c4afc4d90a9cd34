"""A text as numbers, made once: characters in memory, byte pairs also on disk, by what they were learned from.

tokens/NAME-TOKENS-CHECKSUM/tokenizer.json       as the library `tokenizers` reads it
tokens/NAME-TOKENS-CHECKSUM/tokens.safetensors   both parts of the text
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from unbraid.axes import Int
from unbraid.files import read_arrays, write_arrays, write_bytes
from unbraid.worlds.text.corpus import Corpus, files, read
from unbraid.worlds.text.units import Units, byte_pairs, characters, learn

HOME = Path("tokens")


@dataclass(frozen=True)
class Tokenised:
    units: Units
    training: Int[np.ndarray, "n"]
    validation: Int[np.ndarray, "p"]
    characters: int
    """Of the validation text."""
    fingerprint: str
    """The checksum of both parts."""


def tokenised(text: str, tokens: int | None, most: int | None, most_validation: int | None) -> Tokenised:
    """A text cut into so many byte pairs, or into characters; read again only when its files have changed."""
    stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files(text))
    return _tokenised(text, tokens, most, most_validation, stamps, Path.cwd())


@lru_cache(maxsize=8)
def _tokenised(
    text: str,
    tokens: int | None,
    most: int | None,
    most_validation: int | None,
    stamps: tuple[tuple[int, int], ...],  # noqa: ARG001 (these two tell texts of one name apart)
    where: Path,  # noqa: ARG001
) -> Tokenised:
    corpus = read(text, most, most_validation)
    fingerprint = hashlib.sha256("\0".join([corpus.training, corpus.validation]).encode()).hexdigest()
    if tokens is None:
        units = characters(corpus.training)
        parts = units.encode(corpus.training), units.encode(corpus.validation)
    else:
        units, parts = _kept(corpus, tokens, HOME / f"{Path(text).stem}-{tokens}-{fingerprint[:8]}")
    return Tokenised(units, *parts, len(corpus.validation), fingerprint)


def _kept(corpus: Corpus, tokens: int, folder: Path) -> tuple[Units, tuple[np.ndarray, np.ndarray]]:
    """Byte pairs as they are on disk; learned first where they are not."""
    numbers, learned = folder / "tokens.safetensors", folder / "tokenizer.json"
    if not numbers.is_file():
        found = learn(corpus.training, tokens)
        units = byte_pairs(found)
        write_bytes(learned, found.to_str(pretty=True).encode())
        parts = {"training": units.encode(corpus.training), "validation": units.encode(corpus.validation)}
        write_arrays(numbers, parts)
    arrays = read_arrays(numbers)
    units = byte_pairs(Tokenizer.from_str(learned.read_text(encoding="utf-8")))
    return units, (arrays["training"], arrays["validation"])
