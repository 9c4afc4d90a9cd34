"""A text becomes numbers: where it is read, what it is cut into, and what is kept on disk.

Texts
    primer       a small text of our own, in this package
    wikitext-2   real-data/wikitext-2, as `make real-data` leaves it
    a folder     train.txt, and valid.txt to be predicted
    a file       its last tenth, by characters and from the next line on, is to be predicted

Units, numbered from 1 (0 is padding and never occurs)
    characters   those that occur at least 10 times in training; all others are one unknown sign, number 1
    bpe          byte pairs as in GPT-2: UTF-8, the two that stand together most often joined (Sennrich et al. 2016)

Characters are made in memory; byte pairs are also kept on disk, by the checksum of what they were learned from:
    tokens/NAME-TOKENS-CHECKSUM/tokenizer.json       as the library `tokenizers` reads it
    tokens/NAME-TOKENS-CHECKSUM/tokens.safetensors   both parts of the text
    tokens/NAME-TOKENS-CHECKSUM/checksums.json       of the two files
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from unbraid.axes import Int
from unbraid.config import suggest
from unbraid.errors import REAL_DATA, Missing, UserError
from unbraid.storage.checksums import is_sealed, seal, verify
from unbraid.storage.files import Damaged, read_arrays, read_bytes, write_arrays, write_bytes

NAMED = {"primer": Path(__file__).with_name("primer.txt"), "wikitext-2": Path(REAL_DATA) / "wikitext-2"}
TRAINING, VALIDATION = "train.txt", "valid.txt"
KEPT = 0.1
"""The share of a single file that is kept to be predicted."""
RARE = 10
"""A character that occurs less often in training is unknown."""
UNKNOWN = 1
SIGNS = ("<padding>", "<unknown>")
BYTES = 256
"""Every text can be written with so many tokens, so byte pairs start from them."""
CACHE = Path("tokens")
"""Where byte pairs are kept."""


@dataclass(frozen=True)
class Corpus:
    """The text to learn from and the text to be predicted."""

    training: str
    validation: str


def corpus_files(text: str) -> list[Path]:
    """What is read: one file, or that to learn from and that to be predicted."""
    path = NAMED.get(text, Path(text))
    if path.is_dir():
        found = [path / TRAINING, path / VALIDATION]
        if absent := [file.name for file in found if not file.is_file()]:
            raise UserError(f"the text {path} has no {absent[0]}; accepted: a folder with {TRAINING} and {VALIDATION}")
        return found
    if not path.is_file():
        named = suggest(text, NAMED)
        raise Missing(f"there is no text '{path}'; {named}, a file, or a folder with {TRAINING} and {VALIDATION}", path)
    return [path]


def read_corpus(text: str, characters: int | None = None, validation: int | None = None) -> Corpus:
    """Both parts, and of each no more than its first so many characters."""
    parts = [_read(file) for file in corpus_files(text)]
    first, second = parts if len(parts) > 1 else _cut(parts[0])
    return Corpus(first[:characters], second[:validation])


def _read(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UserError(f"the text {file} is not UTF-8 ({problem.reason}); accepted: a text in UTF-8") from None
    except OSError as problem:
        raise UserError(f"cannot read the text {file}: {problem.strerror}") from None
    if not text.strip():
        raise UserError(f"the text {file} is empty; accepted: a text with at least one word")
    return text


def _cut(text: str) -> tuple[str, str]:
    """In two, where a line begins; or anywhere, where there is no such line."""
    place = int(len(text) * (1 - KEPT))
    line = text.find("\n", place, -1) + 1
    return text[: line or place], text[line or place :]


@dataclass(frozen=True)
class TextTokenizer:
    """The tokens by their number, each the bytes it stands for, and how a text becomes numbers."""

    pieces: tuple[bytes, ...]
    encode: Callable[[str], Int[np.ndarray, "n"]]
    signs: tuple[str, ...]
    """How the first of them are shown, which stand for no bytes of their own."""

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        shown = (piece.decode("utf-8", "backslashreplace") for piece in self.pieces[len(self.signs) :])
        return (*self.signs, *shown)

    def decode(self, tokens: list[int]) -> str:
        return b"".join(self.pieces[token] for token in tokens).decode("utf-8", "replace")


def character_tokenizer(training: str) -> TextTokenizer:
    """The characters of a text; refuses one in which all are rare."""
    counts = np.bincount(_codes(training))
    kept = np.flatnonzero(counts >= RARE)
    if not len(kept):
        raise UserError(f"no character of the text occurs {RARE} times; accepted: a longer text, or units = 'bpe'")
    numbers = np.full(0x110000, UNKNOWN, dtype=np.int32)
    numbers[kept] = np.arange(2, 2 + len(kept))
    pieces = (b"", "\N{REPLACEMENT CHARACTER}".encode(), *(chr(code).encode() for code in kept))
    return TextTokenizer(pieces, lambda text: numbers[_codes(text)], SIGNS)


def learn_bpe(training: str, tokens: int) -> Tokenizer:
    """Byte pairs of a text, so many with the bytes themselves; refuses more than it has."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=tokens, initial_alphabet=alphabet, show_progress=False)  # pyright: ignore[reportCallIssue]
    learned.train_from_iterator(training.splitlines(keepends=True), trainer)
    if (found := learned.get_vocab_size()) < tokens:
        accepted = f"{BYTES + 1} to {found}" if found > BYTES else "a longer text"
        raise UserError(f"{tokens} tokens were asked for and the text has pairs for {found}; accepted: {accepted}")
    return learned


def bpe_tokenizer(learned: Tokenizer) -> TextTokenizer:
    """As learned, with every number one higher: 0 is padding."""
    letters = {letter: byte for byte, letter in enumerate(_letters())}
    numbered = sorted(learned.get_vocab().items(), key=lambda one: one[1])
    pieces = [bytes(letters[letter] for letter in token) for token, _ in numbered]

    def encode(text: str) -> np.ndarray:
        lines = learned.encode_batch_fast(text.splitlines(keepends=True))
        return np.concatenate([np.zeros(0, np.int32), *(np.array(line.ids, np.int32) + 1 for line in lines)])

    return TextTokenizer((b"", *pieces), encode, SIGNS[:1])


def _codes(text: str) -> np.ndarray:
    """The code point of each character."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _letters() -> list[str]:
    """The letter that GPT-2 writes each byte with: its own where it can be seen, else one from 256 on."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(BYTES) if byte not in seen]
    return [chr(byte if byte in seen else BYTES + hidden.index(byte)) for byte in range(BYTES)]


@dataclass(frozen=True)
class Tokenized:
    """A corpus as token ids."""

    tokenizer: TextTokenizer
    training: Int[np.ndarray, "n"]
    validation: Int[np.ndarray, "p"]
    characters: int
    """Of the validation text."""
    fingerprint: str
    """The checksum of both parts."""


def tokenize(text: str, tokens: int | None, most: int | None, most_validation: int | None) -> Tokenized:
    """A text cut into so many byte pairs, or into characters; read again only when its files have changed."""
    stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in corpus_files(text))
    return _tokenize(text, tokens, most, most_validation, stamps, Path.cwd())


@lru_cache(maxsize=8)
def _tokenize(
    text: str,
    tokens: int | None,
    most: int | None,
    most_validation: int | None,
    stamps: tuple[tuple[int, int], ...],  # noqa: ARG001 (these two tell texts of one name apart)
    where: Path,  # noqa: ARG001
) -> Tokenized:
    corpus = read_corpus(text, most, most_validation)
    fingerprint = hashlib.sha256("\0".join([corpus.training, corpus.validation]).encode()).hexdigest()
    if tokens is None:
        tokenizer = character_tokenizer(corpus.training)
        parts = tokenizer.encode(corpus.training), tokenizer.encode(corpus.validation)
    else:
        tokenizer, parts = _cached_bpe(corpus, tokens, CACHE / f"{Path(text).stem}-{tokens}-{fingerprint[:8]}")
    return Tokenized(tokenizer, *parts, len(corpus.validation), fingerprint)


def _cached_bpe(corpus: Corpus, tokens: int, folder: Path) -> tuple[TextTokenizer, tuple[np.ndarray, np.ndarray]]:
    """Byte pairs as they are on disk; learned first where they are not, whole and with checksums."""
    numbers, learned = folder / "tokens.safetensors", folder / "tokenizer.json"
    if not is_sealed(folder):
        found = learn_bpe(corpus.training, tokens)
        tokenizer = bpe_tokenizer(found)
        write_bytes(learned, found.to_str(pretty=True).encode())
        parts = {"training": tokenizer.encode(corpus.training), "validation": tokenizer.encode(corpus.validation)}
        write_arrays(numbers, parts)
        seal(folder, {"of": "tokens"})
    try:
        verify(folder)
    except Damaged as problem:
        raise Damaged(f"{problem}; remove {folder} to have it made again") from None
    arrays = read_arrays(numbers)
    tokenizer = bpe_tokenizer(Tokenizer.from_str(read_bytes(learned).decode()))
    return tokenizer, (arrays["training"], arrays["validation"])
