"""What every world gives: batches of inputs together with the planted factors behind them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.capture.normalisation import Normalisation
from unbraid.codes import Codes
from unbraid.config import Record


@dataclass(frozen=True)
class Batch:
    """Inputs and what fired to make them (`truth` has a member axis of length one; it is empty where none is known)."""

    x: Float[Tensor, "b d"]
    truth: Codes
    exact: bool = False
    """Whether x is just the sum of the true directions that fired, with nothing added."""


class World(Record, ABC):
    """A source of truth: the same seed, split and position always give the same batch."""

    dimensions: int

    @property
    def is_planted(self) -> bool:
        """Whether the truth is known; activations of a real model have none."""
        return len(self.directions) > 0

    @property
    def normalisation(self) -> Normalisation | None:
        """What was done to the inputs of the model before they became these batches, where anything was."""
        return None

    @property
    @abstractmethod
    def directions(self) -> Float[Tensor, "n d"]:
        """The planted unit directions."""

    @property
    @abstractmethod
    def probabilities(self) -> Float[Tensor, "n"]:
        """How often each planted feature fires."""

    @property
    def parents(self) -> Int[Tensor, "n"]:
        """The feature without which each feature never fires; -1 for none."""
        return torch.full((len(self.directions),), -1)

    @abstractmethod
    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        """Batch number `position` of a split; different splits never share a sample."""
