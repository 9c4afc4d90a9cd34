"""Sparse features in superposition: more unit directions than dimensions, few of them firing at a time.

    x = Σ strength_i · direction_i  over the features i that fire  (+ noise)

How often each fires and which fire together is the rule `firing`; by default each on its own, with
P(i fires) = active · decay^i / Σ_j decay^j.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.nn.functional import embedding_bag, normalize

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.randomness import stream
from unbraid.worlds.firing import AnyFiring, Cells, Independent, Population, Sampler
from unbraid.worlds.world import Batch, World


class Superposition(World):
    """Planted features in superposition: the truth that a dictionary trained on the batches should recover.

    Parameters
    ----------
    dimensions : int
        d, the width of the inputs.
    n_features : int
        n, the planted features; above `dimensions` they are in superposition.
    decay : float
        How often each feature fires relative to the one before, in (0, 1].
    active : float
        Features that fire in a sample, on average.
    firing : Firing
        Which features fire together: `Independent` (default), `Correlated` or `Hierarchy`.
    strength : str
        The law of a strength: `uniform` on (0, 1], or the `product` of two such.
    noise : float
        Standard deviation of the Gaussian noise added to every entry of x.
    seed : int
        Of all random draws.

    Attributes
    ----------
    directions : Tensor (n, d)
        The planted unit directions.
    probabilities : Tensor (n,)
        How often each feature fires.
    parents : Tensor (n,)
        The feature without which each never fires, or -1.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Superposition(dimensions=64, n_features=128, active=3.0)
    >>> batch = world.batch(position=0, size=256)
    >>> batch.x.shape, batch.truth.to_dense().shape
    (torch.Size([256, 64]), torch.Size([1, 256, 128]))
    >>> round(float(world.probabilities.sum()), 6)
    3.0
    """

    renamed: ClassVar[dict[str, str]] = {"features": "n_features"}

    kind: Literal["superposition"] = "superposition"
    dimensions: int = Field(default=256, ge=1, le=1 << 20)
    """Width of the inputs; more make the planted directions more nearly orthogonal."""
    n_features: int = Field(default=512, ge=1, le=1 << 24)
    """Planted features; more in the same width interfere more."""
    decay: float = Field(default=0.99, gt=0, le=1)
    """Firing rate of each feature relative to the one before; at 1 all fire as often."""
    active: float = Field(default=5.0, gt=0)
    """Mean number of features that fire in a sample; more make the inputs less sparse."""
    firing: AnyFiring = Independent()
    """Which features fire together: kind `independent`, `correlated` or `hierarchy`."""
    strength: Literal["uniform", "product"] = "uniform"
    """Law of the strengths, in (0, 1]: uniform, or the product of two uniform numbers (mean 1/4 instead of 1/2)."""
    noise: float = Field(default=0.0, ge=0)
    """Standard deviation of Gaussian noise on every entry of the inputs; more makes reconstruction worse."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Another seed plants other directions and draws other batches."""

    @model_validator(mode="after")
    def check_firing(self) -> Self:
        self.firing.check(self._population)
        return self

    @cached_property
    def probabilities(self) -> Float[Tensor, "n"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.from_numpy(self._sampler.probabilities())

    @cached_property
    def parents(self) -> Int[Tensor, "n"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.from_numpy(self._sampler.parents())

    @cached_property
    def directions(self) -> Float[Tensor, "n d"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows = stream(self.seed, "directions").standard_normal((self.n_features, self.dimensions), dtype=np.float32)
        return normalize(torch.from_numpy(rows), dim=1)

    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        rng = stream(self.seed, split, position)
        fired = self._fire(rng, size)
        x = fired.mix(self.directions)
        if self.noise:
            x += self.noise * torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
        return Batch(x, fired.codes(self.n_features), exact=not self.noise)

    def _fire(self, rng: np.random.Generator, size: int) -> "_Fired":
        cells = self._sampler.fire(rng, size)
        strengths = self._strengths(rng, cells)
        return _Fired(cells.samples, cells.features, strengths, np.searchsorted(cells.samples, np.arange(size)))

    def _strengths(self, rng: np.random.Generator, cells: Cells) -> np.ndarray:
        strengths = 1 - rng.random(cells.samples.size, dtype=np.float32)  # in (0, 1]: what fired is never 0
        if self.strength == "product":
            strengths *= 1 - rng.random(cells.samples.size, dtype=np.float32)
        if cells.full is not None:
            strengths[cells.full] = 1
        return strengths

    @property
    def _population(self) -> Population:
        return Population(self.n_features, self.decay, self.active, self.seed)

    @cached_property
    def _sampler(self) -> Sampler:
        return self.firing.sampler(self._population)


@dataclass(frozen=True)
class _Fired:
    """What fired, as one list sorted by sample; `starts` says where each sample's part begins."""

    samples: np.ndarray
    features: np.ndarray
    strengths: np.ndarray
    starts: np.ndarray

    def mix(self, directions: Float[Tensor, "n d"]) -> Float[Tensor, "b d"]:
        """Each sample's directions, added up with their strengths."""
        lists = [torch.from_numpy(array) for array in (self.features, self.starts, self.strengths)]
        return embedding_bag(lists[0], directions, lists[1], mode="sum", per_sample_weights=lists[2])

    def codes(self, width: int) -> Codes:
        """The same, as one row of slots per sample."""
        slot = np.arange(self.samples.size) - self.starts[self.samples]
        shape = (1, self.starts.size, int(slot.max(initial=0)) + 1)
        features, values = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        features[0, self.samples, slot] = self.features
        values[0, self.samples, slot] = self.strengths
        return Codes(torch.from_numpy(features), torch.from_numpy(values), width)
