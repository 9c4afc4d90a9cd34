"""What a rule of firing is, and the simplest one: every feature on its own.

A rule is settings that, given a population of features, say how often each fires and draw which fire together. What
fires in a batch is a list of (sample, feature) cells, drawn without looking at those that do not fire: a Poisson
process with rate -log(1 - p_i) hits each cell of feature i, and a cell hit at least once has fired, which has
probability p_i exactly. The draw costs what fires, not features × samples.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from unbraid.config import Config


@dataclass(frozen=True)
class Population:
    """The features that may fire."""

    n_features: int
    decay: float
    """How often each feature fires, relative to the one before."""
    active: float
    """How many fire in a sample, on average."""
    seed: int

    def shares(self) -> np.ndarray:
        """decay^i: how often each fires, relative to the first."""
        return self.decay ** np.arange(self.n_features)

    def marginals(self) -> np.ndarray:
        """The shares, rescaled so that `active` features fire on average."""
        share = self.shares()
        return self.active * share / share.sum()

    def check_rate(self, largest: float) -> None:
        """Refuse a population whose largest firing probability is 1 or more, and say how many active it can have."""
        if largest >= 1:
            raise ValueError(
                f"{self.active:g} active of {self.n_features} features with decay {self.decay:g} needs a firing "
                f"probability of {largest:.3g}; accepted: active below {self.active / largest:.3g}"
            )


@dataclass(frozen=True)
class Cells:
    """What fired, sorted by sample; `full` marks the cells whose strength is 1 whatever the law of strengths."""

    samples: np.ndarray
    features: np.ndarray
    full: np.ndarray | None = None


class Sampler(ABC):
    """A rule at work on a population: what it has to work out once, and its draws."""

    population: Population

    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """How often each feature fires, over all batches."""

    def parents(self) -> np.ndarray:
        """The feature without which each feature never fires, or -1."""
        return np.full(self.population.n_features, -1)

    @abstractmethod
    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        """What fires in a batch of this size; nothing but the generator decides it."""


class Firing(Config, ABC):
    """The base class of firing rules: which planted features of a `Superposition` fire together.

    A subclass implements `check`, which raises ValueError for features it cannot serve, and `sampler`, which draws.

    Examples
    --------
    >>> import unbraid as ub
    >>> rule: ub.Firing = ub.Correlated(rank=2, correlation=0.5)
    >>> ub.Superposition(n_features=64, dimensions=32, firing=rule).probabilities.shape
    torch.Size([64])
    """

    @abstractmethod
    def check(self, population: Population) -> None:
        """Refuse, with a ValueError and before any work, a population this rule cannot fire."""

    @abstractmethod
    def sampler(self, population: Population) -> Sampler:
        """The rule at work on this population."""


def fire_independently(rng: np.random.Generator, rates: np.ndarray, size: int) -> Cells:
    """Every cell on its own: feature i fires in a sample with probability 1 - exp(-rates[i])."""
    hits = rng.poisson(size * rates)
    features = np.repeat(np.arange(rates.size), hits)
    samples = rng.integers(0, size, features.size, dtype=_smallest(size))
    order = np.argsort(samples, kind="stable")
    samples, features = samples[order].astype(np.int64), features[order]
    first = np.diff(samples * rates.size + features, prepend=-1) > 0  # a cell hit twice has fired once
    return Cells(samples[first], features[first])


def sample_order(samples: np.ndarray, size: int) -> np.ndarray:
    """The order that sorts a list of cells by sample and otherwise leaves it as it is."""
    return np.argsort(samples.astype(_smallest(size)), kind="stable")


def _smallest(size: int) -> type[np.integer]:
    """The type for the number of a sample: numpy sorts 16-bit integers by radix, several times faster."""
    return np.uint16 if size <= 1 << 16 else np.int64


class Independent(Firing):
    """Every planted feature fires on its own, whatever the others do.

        corrected   p_i = active · decay^i / Σ_j decay^j    `active` features fire on average
        published   p_i = active · decay^i / n              not rescaled: 0.971 instead of 5 at the defaults

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Superposition(firing=ub.Independent(form="published"))
    >>> round(float(world.probabilities.sum()), 3)
    0.971
    """

    kind: Literal["independent"] = "independent"
    """The rule's name in a configuration."""
    form: Literal["corrected", "published"] = "corrected"
    """published: not rescaled, so that fewer than `active` features fire, as in the superposition study's code."""

    def check(self, population: Population) -> None:
        population.check_rate(self.sampler(population).probabilities()[0])

    def sampler(self, population: Population) -> "IndependentSampler":
        return IndependentSampler(population, rescaled=self.form == "corrected")


@dataclass(frozen=True)
class IndependentSampler(Sampler):
    population: Population
    rescaled: bool

    def probabilities(self) -> np.ndarray:
        if self.rescaled:
            return self.population.marginals()
        return self.population.shares() * (self.population.active / self.population.n_features)

    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        return fire_independently(rng, self._rates, size)

    @cached_property
    def _rates(self) -> np.ndarray:
        return -np.log1p(-self.probabilities())
