"""What a text is cut into: characters, or byte pairs in GPT-2's manner. Number 0 is padding and never occurs.

characters   those that occur at least 10 times in training; all others are one unknown sign, number 1
bpe          pieces of UTF-8, learned by joining the two that stand together most often (Sennrich et al. 2016)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from unbraid.axes import Int
from unbraid.errors import Refusal

RARE = 10
"""A character that occurs less often in training is unknown."""
UNKNOWN = 1
SIGNS = ("<padding>", "<unknown>")
BYTES = 256
"""Every text can be written with so many tokens, so byte pairs start from them."""


@dataclass(frozen=True)
class Units:
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


def characters(training: str) -> Units:
    """The characters of a text; refuses one in which all are rare."""
    counts = np.bincount(_codes(training))
    kept = np.flatnonzero(counts >= RARE)
    if not len(kept):
        raise Refusal(f"no character of the text occurs {RARE} times; accepted: a longer text, or units = 'bpe'")
    numbers = np.full(0x110000, UNKNOWN, dtype=np.int32)
    numbers[kept] = np.arange(2, 2 + len(kept))
    pieces = (b"", "\N{REPLACEMENT CHARACTER}".encode(), *(chr(code).encode() for code in kept))
    return Units(pieces, lambda text: numbers[_codes(text)], SIGNS)


def learn(training: str, tokens: int) -> Tokenizer:
    """Byte pairs of a text, so many with the bytes themselves; refuses more than it has."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=tokens, initial_alphabet=alphabet, show_progress=False)  # pyright: ignore[reportCallIssue]
    learned.train_from_iterator(training.splitlines(keepends=True), trainer)
    if (found := learned.get_vocab_size()) < tokens:
        accepted = f"{BYTES + 1} to {found}" if found > BYTES else "a longer text"
        raise Refusal(f"{tokens} tokens were asked for and the text has pairs for {found}; accepted: {accepted}")
    return learned


def byte_pairs(learned: Tokenizer) -> Units:
    """As learned, with every number one higher: 0 is padding."""
    letters = {letter: byte for byte, letter in enumerate(_letters())}
    numbered = sorted(learned.get_vocab().items(), key=lambda one: one[1])
    pieces = [bytes(letters[letter] for letter in token) for token, _ in numbered]

    def encode(text: str) -> np.ndarray:
        lines = learned.encode_batch_fast(text.splitlines(keepends=True))
        return np.concatenate([np.zeros(0, np.int32), *(np.array(line.ids, np.int32) + 1 for line in lines)])

    return Units((b"", *pieces), encode, SIGNS[:1])


def _codes(text: str) -> np.ndarray:
    """The code point of each character."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _letters() -> list[str]:
    """The letter that GPT-2 writes each byte with: its own where it can be seen, else one from 256 on."""
    seen = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = [byte for byte in range(BYTES) if byte not in seen]
    return [chr(byte if byte in seen else BYTES + hidden.index(byte)) for byte in range(BYTES)]
