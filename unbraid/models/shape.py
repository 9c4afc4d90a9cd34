"""What the settings of every kind of transformer say of themselves, so that nobody outside need know the kind."""

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

from pydantic import Field

from unbraid.config import Record


class Sizes(NamedTuple):
    """About how large a model is: its weights, what one token of a batch keeps to go back, and its products."""

    weights: int
    kept: int
    products: int


class Shape(Record, ABC):
    """One shape of transformer."""

    layers: int = Field(default=2, ge=1, le=1024)
    causal: bool = True
    readout: Literal["question", "mean"] = "question"

    @property
    @abstractmethod
    def width(self) -> int:
        """Of the residual stream."""

    @property
    @abstractmethod
    def head_labels(self) -> tuple[str, ...]:
        """What kind of head each of a layer is."""

    @abstractmethod
    def hooks(self) -> list[str]:
        """Every name that a model of this shape can record."""

    @abstractmethod
    def sizes(self, length: int) -> Sizes:
        """Of one model, for sequences of this length."""

    @property
    def heads_a_layer(self) -> int:
        return len(self.head_labels)

    @abstractmethod
    def rate_of(self, weight: str) -> float:
        """How much faster than others this weight learns."""
