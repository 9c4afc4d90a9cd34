"""What every world gives: batches of inputs together with the planted factors behind them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from unbraid.activations.normalization import Normalization
from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import Config
from unbraid.config.plugins import returned


@dataclass(frozen=True)
class Batch:
    """Inputs and what fired to make them (`truth` has a member axis of length one; it is empty where none is known)."""

    x: Float[Tensor, "b d"]
    truth: Codes
    exact: bool = False
    """Whether x is just the sum of the true directions that fired, with nothing added."""
    target: Float[Tensor, "b o"] | None = None
    """What a dictionary must predict from x; None: x itself."""


@dataclass(frozen=True)
class Circuit:
    """A planted map: which features of the inputs drive which factors of the targets."""

    edges: Float[Tensor, "n j"]
    """The weight of each connection; 0 where there is none."""
    directions: Float[Tensor, "j o"]
    """The planted unit directions of the targets."""
    threshold: float = 0.0
    """What the drive of a target factor must exceed."""

    def targets(self, drive: Float[Tensor, "*b j"]) -> Float[Tensor, "*b o"]:
        """What the target factors make, driven so."""
        return (drive - self.threshold).relu() @ self.directions


def check_batch(world: "World", batch: Batch, size: int) -> None:
    """A plugin's batch that has not what was asked for is told as its own mistake."""
    found, wanted = (tuple(batch.x.shape), batch.x.dtype), ((size, world.dimensions), torch.float32)
    if found != wanted:
        accepted = f"{wanted[0]} of {wanted[1]}"
        raise returned(world.batch, f"inputs of shape {found[0]} of {found[1]}; accepted: {accepted}")
    if batch.truth.width != len(world.directions) or batch.truth.values.shape[:2] != (1, size):
        shape = (*batch.truth.values.shape[:2], batch.truth.width)
        raise returned(world.batch, f"the truth of shape {shape}; accepted: {(1, size, len(world.directions))}")


class World(Config, ABC):
    """Where a dictionary's inputs come from, together with the features behind them where they are known.

    `Superposition` plants its features. `Activations` reads a model's activations, and its features are not known. To
    bring your own data, subclass this class and implement `directions`, `probabilities` and `batch`; and
    `target_dimensions`, where batches have a target beside their inputs (transcoders).

    A world is a frozen configuration. The same seed, split and position always give the same batch.

    Attributes
    ----------
    directions : Tensor, shape (n, d)
        The planted unit directions; shape (0, d) where none are known.
    probabilities : Tensor, shape (n,)
        The share of samples in which each planted feature fires.
    parents : integer Tensor, shape (n,)
        The feature without which each feature never fires, or -1.
    has_truth : bool
        Whether the true features are known.

    Examples
    --------
    >>> import unbraid as ub
    >>> world: ub.World = ub.Superposition(dimensions=16, n_features=24, active=2.0)
    >>> world.has_truth, world.directions.shape
    (True, torch.Size([24, 16]))
    >>> bool((world.batch(position=3, size=10).x == world.batch(position=3, size=10).x).all())
    True
    """

    dimensions: int
    """d, the number of dimensions of the inputs."""

    @property
    def has_truth(self) -> bool:
        """Whether the truth is known; activations of a real model have none."""
        return len(self.directions) > 0

    @property
    def normalization(self) -> Normalization | None:
        """What was done to the inputs of the model before they became these batches, where anything was."""
        return None

    @property
    def scored_by_latent(self) -> bool:
        """Whether dictionaries are also scored as SynthSAEBench scores them, latent by latent."""
        return False

    @property
    def target_normalization(self) -> Normalization | None:
        """The same of the targets, where they are not the inputs."""
        return None

    @property
    def target_dimensions(self) -> int | None:
        """o, the number of dimensions of the targets; None where the inputs themselves are reconstructed."""
        return None

    @property
    def sites(self) -> tuple[int, ...]:
        """Widths of the sites that targets are concatenated from, where they are several (crosscoders)."""
        return ()

    @property
    def circuit(self) -> Circuit | None:
        """How planted features of the inputs make those of the targets, where that is known."""
        return None

    @property
    def presence(self) -> Bool[Tensor, "n s"] | None:
        """At which sites each planted feature is, where sites are several and that is known."""
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
        """Draw batch number `position` of a split.

        Parameters
        ----------
        position : int
            Which batch, from 0.
        size : int
            b, the number of samples in the batch.
        split : str, default "train"
            `train`, `evaluation` or any other name; different splits never share a sample.

        Returns
        -------
        Batch
            `x`, a tensor of shape (b, d); and `truth`, the `Codes` of the planted features, shape (1, b, n) when dense.
            `truth` is empty where no features are known.
        """
