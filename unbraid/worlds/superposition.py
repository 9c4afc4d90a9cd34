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
from unbraid.config.plugins import returned
from unbraid.randomness import stream
from unbraid.worlds.firing import AnyFiring, Cells, Independent, Population, Sampler
from unbraid.worlds.world import Batch, World


def _check_cells(sampler: Sampler, cells: Cells, size: int) -> None:
    """A plugin's firing that is not what was asked for is told as its own mistake."""
    if type(sampler).__module__.startswith("unbraid."):
        return
    samples, features = cells.samples, cells.features
    if samples.shape != features.shape or samples.ndim != 1 or {samples.dtype.kind, features.dtype.kind} != {"i"}:
        raise returned(sampler.fire, "cells that are no two lists of integers of one length; accepted: those")
    if samples.size and (samples.min() < 0 or samples.max() >= size or (np.diff(samples) < 0).any()):
        raise returned(sampler.fire, f"samples that are not sorted or not below {size}; accepted: sorted ones from 0")
    if features.size and (features.min() < 0 or features.max() >= sampler.population.n_features):
        raise returned(sampler.fire, f"features beyond the {sampler.population.n_features} there are; accepted: those")


class Superposition(World):
    """Planted features in superposition: sparse sums of random unit directions, more of them than dimensions.

        x = Σ strength_i · direction_i  over the features i that fire  (+ noise)

    A dictionary trained on the batches should find the directions again; `score` says how well it did. Feature i fires
    with probability active · decay^i / Σ_j decay^j, so early features are frequent and late ones rare.

    Attributes
    ----------
    directions : Tensor, shape (n_features, dimensions)
        The planted unit directions.
    probabilities : Tensor, shape (n_features,)
        The share of samples in which each feature fires.
    parents : integer Tensor, shape (n_features,)
        The feature without which each feature never fires, or -1 (see `Hierarchy`).

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Superposition(dimensions=64, n_features=128, active=3.0)
    >>> batch = world.batch(position=0, size=256)
    >>> batch.x.shape, batch.truth.to_dense().shape
    (torch.Size([256, 64]), torch.Size([1, 256, 128]))
    >>> round(float(world.probabilities.sum()), 6)
    3.0

    Features that fire together, and features that need a parent:

    >>> together = ub.Superposition(n_features=128, firing=ub.Correlated())
    >>> nested = ub.Superposition(n_features=128, firing=ub.Hierarchy(children=3))
    >>> int((nested.parents >= 0).sum())
    96
    """

    kind: Literal["superposition"] = "superposition"
    """The world's name in a configuration."""
    dimensions: int = Field(default=256, ge=1, le=1 << 20)
    """d, the number of dimensions of the inputs; more make the planted directions more nearly orthogonal."""
    n_features: int = Field(default=512, ge=1, le=1 << 24)
    """Number of planted features; more in the same number of dimensions interfere more."""
    decay: float = Field(default=0.99, gt=0, le=1)
    """Firing rate of each feature relative to the one before; lower makes late features rarer, at 1 all are alike."""
    active: float = Field(default=5.0, gt=0)
    """Mean number of features that fire in a sample; more make the inputs less sparse."""
    firing: AnyFiring = Independent()
    """Which features fire together: kind `independent`, `correlated` or `hierarchy`."""
    strength: Literal["uniform", "product"] = "uniform"
    """Distribution of strengths, in (0, 1]: uniform (mean 1/2), or the product of two uniform numbers (mean 1/4)."""
    noise: float = Field(default=0.0, ge=0)
    """Standard deviation of the Gaussian noise on every entry of x; more makes reconstruction worse."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Another seed plants other directions and draws other batches."""

    renamed: ClassVar[dict[str, str]] = {"features": "n_features"}

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
        _check_cells(self._sampler, cells, size)
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
        return Codes.of_cells(self.samples, self.features, self.strengths, self.starts, width)
