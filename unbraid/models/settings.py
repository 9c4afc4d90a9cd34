"""The settings of a transformer, and the seed's own as published."""

from typing import Literal, Self

from pydantic import Field, model_validator

from unbraid.config import Record
from unbraid.models.attention import AnyAttention, Softmax
from unbraid.models.feed_forward import AnyFeedForward, Dense

Positions = Literal["nearness", "learned", "sinusoidal", "rotary"]
MOST = 1 << 16


class Transformer(Record):
    """One shape of transformer: pre-norm, its sizes, how it looks, and where the answer is read."""

    d_model: int = Field(default=64, ge=1, le=MOST)
    heads: int = Field(default=4, ge=1, le=MOST)
    layers: int = Field(default=2, ge=1, le=1024)
    d_ff: int = Field(default=256, ge=1, le=MOST)
    causal: bool = True
    positions: Positions = "nearness"
    start: Literal["carrying", "torch"] = "carrying"
    readout: Literal["question", "mean"] = "question"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    attention: AnyAttention = Softmax()
    feed_forward: AnyFeedForward = Dense()

    @property
    def head_width(self) -> int:
        return self.d_model // self.heads

    @property
    def head_labels(self) -> tuple[str, ...]:
        """What the heads of a layer are called, each by its kind."""
        return (self.attention.kind,) * self.heads

    @model_validator(mode="after")
    def fit_together(self) -> Self:
        if self.d_model % self.heads:
            near = [n for n in range(1, self.d_model + 1) if self.d_model % n == 0]
            raise ValueError(
                f"heads is {self.heads}, which does not divide d_model {self.d_model}; "
                f"accepted: {', '.join(map(str, near))}"
            )
        turned = {"rotary": ("head", self.head_width), "sinusoidal": ("d_model", self.d_model)}.get(self.positions)
        if turned and turned[1] % 2:
            raise ValueError(
                f"{self.positions} positions need pairs, and {turned[0]} is {turned[1]} wide; accepted: even"
            )
        self.attention.refuse(self.heads)
        self.feed_forward.refuse(self.d_ff)
        return self


PUBLISHED = Transformer(
    d_model=128, heads=8, d_ff=256, causal=False, positions="sinusoidal", start="torch", readout="mean", dropout=0.1
)
"""The seed's encoder in its table's first rows; with (192, 16, 3 layers) and d_ff 512 in the others."""
