"""What every world gives: batches of inputs together with the planted factors behind them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from unbraid.activations.normalization import Normalization
from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import Config


@dataclass(frozen=True)
class Batch:
    """Inputs and what fired to make them (`truth` has a member axis of length one; it is empty where none is known)."""

    x: Float[Tensor, "b d"]
    truth: Codes
    exact: bool = False
    """Whether x is just the sum of the true directions that fired, with nothing added."""


class World(Config, ABC):
    """Where a dictionary's inputs come from, together with the truth behind them where it is known.

    The same seed, split and position always give the same batch. A world is a frozen configuration: `Superposition`
    plants its features, `Activations` reads those of a model. Another world subclasses this.

    Attributes
    ----------
    dimensions : int
        d, the width of the inputs.
    directions : Tensor (n, d)
        The planted unit directions; none (0, d) where no truth is known.
    probabilities : Tensor (n,)
        How often each planted feature fires.
    parents : Tensor (n,)
        The feature without which each feature never fires, or -1.
    is_planted : bool
        Whether the truth is known.

    Examples
    --------
    >>> import unbraid as ub
    >>> world: ub.World = ub.Superposition(dimensions=16, n_features=24, active=2.0)
    >>> world.is_planted, world.directions.shape
    (True, torch.Size([24, 16]))
    >>> bool((world.batch(3, 10).x == world.batch(3, 10).x).all())
    True
    """

    dimensions: int
    """Width of the inputs."""

    @property
    def is_planted(self) -> bool:
        """Whether the truth is known; activations of a real model have none."""
        return len(self.directions) > 0

    @property
    def normalization(self) -> Normalization | None:
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
        """Batch number `position` of a split.

        Parameters
        ----------
        position : int
            Which batch, from 0.
        size : int
            Samples in the batch, b.
        split : str
            `train`, `evaluation` or any other name; different splits never share a sample.

        Returns
        -------
        Batch
            `x` (b, d) and `truth`, the codes of what fired (1, b, n); empty where no truth is known.
        """
