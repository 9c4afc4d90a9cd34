"""Text, in which every token is asked for the next one: a world without planted factors (the gauge study).

Training sees windows that begin anywhere, as drawn from the seed and the position. The part that is kept to be
predicted is read as windows one after the other, in which every token but the first of all is predicted once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from unbraid.axes import Int, Tensor
from unbraid.config import Config
from unbraid.errors import UserError
from unbraid.randomness import stream
from unbraid.worlds.text.tokens import BYTES, UNKNOWN, Tokenized, tokenize

TOKENS = 1024
"""Byte pairs, where nobody says how many."""


@dataclass(frozen=True)
class TextBatch:
    """Windows of tokens, in which every token is asked for the next."""

    tokens: Int[Tensor, "b t"]
    answers: Int[Tensor, "b t"]
    """The token after each."""

    @classmethod
    def of(cls, windows: Int[np.ndarray, "b u"]) -> "TextBatch":
        """Of windows that are a token longer than what is read."""
        whole = torch.from_numpy(windows.astype(np.int64))
        return cls(whole[:, :-1], whole[:, 1:])

    @property
    def asked(self) -> Int[Tensor, "b t"]:
        """Every position."""
        return torch.arange(self.tokens.shape[1]).expand_as(self.tokens)


class Text(Config):
    """A text cut into tokens, each of which predicts the next: a world to train language models on.

    Attributes
    ----------
    vocabulary : tuple of str
        The tokens by id; 0 is padding.
    tokenized : Tokenized
        The training and validation parts as token ids, and the tokenizer.
    characters_per_token : float
        Mean number of characters in a token of the validation part.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Text(context=16)
    >>> batch = world.batch(position=0, size=4)
    >>> batch.tokens.shape, batch.answers.shape
    (torch.Size([4, 16]), torch.Size([4, 16]))
    >>> bool((batch.answers[:, :-1] == batch.tokens[:, 1:]).all())
    True
    """

    kind: Literal["text"] = "text"
    """The world's name in a configuration."""
    text: str = "primer"
    """`primer` (a small text in this package), `wikitext-2`, a UTF-8 file, or a folder with train.txt and valid.txt."""
    units: Literal["characters", "bpe"] = "characters"
    """What a token is: a character, or a byte pair (BPE)."""
    tokens: int | None = Field(default=None, gt=BYTES, le=1 << 20)
    """Number of byte-pair tokens, 257 or more; more make each token longer. None: 1024."""
    context: int = Field(default=64, ge=2, le=1 << 16)
    """Tokens in a window; more let a model look further back, and cost more."""
    characters: int | None = Field(default=None, ge=1)
    """Use only this many characters of the training text, the first ones. None: all."""
    validation: int | None = Field(default=None, ge=1)
    """Use only this many characters of the validation text, the first ones; fewer evaluate faster. None: all."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Another seed draws other windows."""

    @model_validator(mode="after")
    def check_length(self) -> Self:
        if self.tokens is not None and self.units != "bpe":
            raise ValueError(
                f"tokens is {self.tokens}, and {self.units} are counted; accepted: tokens with units 'bpe'"
            )
        for part, found in {"training": self.tokenized.training, "validation": self.tokenized.validation}.items():
            if len(found) <= self.context:
                raise UserError(
                    f"windows of {self.context} tokens and the next were asked for, and the {part} part of the text "
                    f"'{self.text}' has {len(found)} tokens; accepted: a longer text, or a context below {len(found)}"
                )
        return self

    def __hash__(self) -> int:
        return hash((type(self), *self.to_dict().items()))

    @cached_property
    def tokenized(self) -> Tokenized:
        """The text as numbers."""
        tokens = (self.tokens or TOKENS) if self.units == "bpe" else None
        return tokenize(self.text, tokens, self.characters, self.validation)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens by their number; 0 is padding."""
        return self.tokenized.tokenizer.vocabulary

    @property
    def answers(self) -> tuple[str, ...]:
        return self.vocabulary

    @property
    def length(self) -> int:
        return self.context

    @property
    def characters_per_token(self) -> float:
        """Of the part that is predicted."""
        return self.tokenized.characters / len(self.tokenized.validation)

    @property
    def unknown(self) -> float:
        """The share of the tokens to be predicted that are the unknown sign; byte pairs write everything."""
        return float((self.tokenized.validation == UNKNOWN).mean()) if self.units == "characters" else 0.0

    def words(self, tokens: Int[Tensor, "t"]) -> list[str]:
        """The text of each token."""
        vocabulary = self.vocabulary
        return [vocabulary[token] for token in tokens.tolist()]

    def batch(self, position: int, size: int) -> TextBatch:
        """Draw training windows, with replacement.

        Parameters
        ----------
        position : int
            Which batch, from 0; the same position always gives the same batch.
        size : int
            b, the number of windows.

        Returns
        -------
        TextBatch
            Token ids `tokens` (b, context) and `answers` (b, context), the token after each.
        """
        if position < 0 or size < 1:
            raise UserError(
                f"batch {position} of size {size} was asked for; accepted: a position from 0, a size from 1"
            )
        training = self.tokenized.training
        starts = stream(self.seed, "windows", position).integers(0, len(training) - self.context, size)
        return TextBatch.of(training[starts[:, None] + np.arange(self.context + 1)])

    def held_out(self, size: int) -> Iterator[TextBatch]:
        """The whole part to be predicted, so many windows at a time; the last window may be short, and comes alone."""
        tokens, length = self.tokenized.validation, self.context
        whole = (len(tokens) - 1) // length
        starts = np.arange(whole) * length
        for first in range(0, whole, size):
            yield TextBatch.of(tokens[starts[first : first + size, None] + np.arange(length + 1)])
        if len(rest := tokens[whole * length :]) > 1:
            yield TextBatch.of(rest[None])
