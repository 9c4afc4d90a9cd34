"""Text, in which every token is asked for the next one: a world without planted factors (seed 001).

Training sees windows that begin anywhere, as drawn from the seed and the position. The part that is kept to be
predicted is read as windows one after the other, in which every token but the first of all is predicted once.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from unbraid.axes import Int, Tensor
from unbraid.config import Record
from unbraid.errors import Refusal
from unbraid.randomness import stream
from unbraid.worlds.text.batch import TextBatch
from unbraid.worlds.text.tokenised import Tokenised, tokenised
from unbraid.worlds.text.units import BYTES, UNKNOWN

TOKENS = 1024
"""Byte pairs, where nobody says how many."""


class Text(Record):
    kind: Literal["text"] = "text"
    text: str = "primer"
    units: Literal["characters", "bpe"] = "characters"
    tokens: int | None = Field(default=None, gt=BYTES, le=1 << 20)
    context: int = Field(default=64, ge=2, le=1 << 16)
    characters: int | None = Field(default=None, ge=1)
    validation: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def be_a_text_that_can_be_taught(self) -> Self:
        if self.tokens is not None and self.units != "bpe":
            raise ValueError(
                f"tokens is {self.tokens}, and {self.units} are counted; accepted: tokens with units 'bpe'"
            )
        for part, found in {"training": self.made.training, "validation": self.made.validation}.items():
            if len(found) <= self.context:
                raise Refusal(
                    f"windows of {self.context} tokens and the next were asked for, and the {part} part of the text "
                    f"'{self.text}' has {len(found)} tokens; accepted: a longer text, or a context below {len(found)}"
                )
        return self

    def __hash__(self) -> int:
        return hash((type(self), *self.tree().items()))

    @cached_property
    def made(self) -> Tokenised:
        """The text as numbers."""
        tokens = (self.tokens or TOKENS) if self.units == "bpe" else None
        return tokenised(self.text, tokens, self.characters, self.validation)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens by their number; 0 is padding."""
        return self.made.units.vocabulary

    @property
    def answers(self) -> tuple[str, ...]:
        return self.vocabulary

    @property
    def length(self) -> int:
        return self.context

    @property
    def characters_per_token(self) -> float:
        """Of the part that is predicted."""
        return self.made.characters / len(self.made.validation)

    @property
    def unknown(self) -> float:
        """The share of the tokens to be predicted that are the unknown sign; byte pairs write everything."""
        return float((self.made.validation == UNKNOWN).mean()) if self.units == "characters" else 0.0

    def words(self, tokens: Int[Tensor, "t"]) -> list[str]:
        """The text of each token."""
        vocabulary = self.vocabulary
        return [vocabulary[token] for token in tokens.tolist()]

    def batch(self, position: int, size: int) -> TextBatch:
        """Windows to learn from, drawn with replacement."""
        if position < 0 or size < 1:
            raise Refusal(f"batch {position} of size {size} was asked for; accepted: a position from 0, a size from 1")
        training = self.made.training
        starts = stream(self.seed, "windows", position).integers(0, len(training) - self.context, size)
        return TextBatch.of(training[starts[:, None] + np.arange(self.context + 1)])

    def held_out(self, size: int) -> Iterator[TextBatch]:
        """The whole part to be predicted, so many windows at a time; the last window may be short, and comes alone."""
        tokens, length = self.made.validation, self.context
        whole = (len(tokens) - 1) // length
        starts = np.arange(whole) * length
        for first in range(0, whole, size):
            yield TextBatch.of(tokens[starts[first : first + size, None] + np.arange(length + 1)])
        if len(rest := tokens[whole * length :]) > 1:
            yield TextBatch.of(rest[None])
