"""The settings of a transformer, and the seed's own as published."""

from typing import Literal, Self

from pydantic import Field, model_validator

from unbraid.models.attention import AnyAttention, Softmax
from unbraid.models.feed_forward import AnyFeedForward, Dense
from unbraid.models.recording import OF_A_BLOCK, OF_HEADS
from unbraid.models.shape import Shape, Sizes

Positions = Literal["nearness", "learned", "sinusoidal", "rotary"]
MOST = 1 << 16


class Transformer(Shape):
    """One shape of transformer: pre-norm, its sizes, how it looks, and where the answer is read."""

    kind: Literal["transformer"] = "transformer"
    d_model: int = Field(default=64, ge=1, le=MOST)
    heads: int = Field(default=4, ge=1, le=MOST)
    d_ff: int = Field(default=256, ge=1, le=MOST)
    positions: Positions = "nearness"
    start: Literal["carrying", "torch"] = "carrying"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    attention: AnyAttention = Softmax()
    feed_forward: AnyFeedForward = Dense()

    @property
    def width(self) -> int:
        return self.d_model

    @property
    def head_labels(self) -> tuple[str, ...]:
        return (str(self.attention.tree()["kind"]),) * self.heads

    def hooks(self) -> list[str]:
        attention = [f"attn.{name}" for name in (*OF_HEADS, *sorted(self.attention.hooks))]
        feed_forward = [f"mlp.{name}" for name in sorted(self.feed_forward.hooks)]
        names = [*OF_A_BLOCK, *attention, *feed_forward]
        return [f"blocks.{layer}.{name}" for layer in range(self.layers) for name in names]

    def sizes(self, length: int) -> Sizes:
        weights = self.layers * (4 * self.d_model**2 + 2 * self.d_model * self.d_ff)
        kept = self.layers * (12 * self.d_model + 3 * self.d_ff + 3 * self.heads * length)
        return Sizes(weights, kept, weights + self.layers * 2 * self.d_model * length)

    def rate_of(self, weight: str) -> float:  # noqa: ARG002 (all learn alike)
        return 1.0

    @property
    def head_width(self) -> int:
        return self.d_model // self.heads

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
