"""What a rule of firing is: settings that, given who may fire, say how often each does and draw which do together."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from unbraid.config import Record
from unbraid.worlds.firing.cells import Cells


@dataclass(frozen=True)
class Population:
    """Who may fire: how many features, how much rarer each is than the one before, and how many fire at a time."""

    features: int
    decay: float
    active: float
    seed: int

    def shares(self) -> np.ndarray:
        """decay^i: how often each fires, relative to the first."""
        return self.decay ** np.arange(self.features)

    def marginals(self) -> np.ndarray:
        """The shares, rescaled so that `active` features fire on average."""
        share = self.shares()
        return self.active * share / share.sum()

    def refuse_certainty(self, largest: float) -> None:
        """Say that this many active would need a feature to fire always or more, and how many would not."""
        if largest >= 1:
            raise ValueError(
                f"{self.active:g} active of {self.features} features with decay {self.decay:g} needs a firing "
                f"probability of {largest:.3g}; accepted: active below {self.active / largest:.3g}"
            )


class Sampler(ABC):
    """A rule at work on a population: what it has to work out once, and its draws."""

    population: Population

    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """How often each feature fires, over all batches."""

    def parents(self) -> np.ndarray:
        """The feature without which each feature never fires, or -1."""
        return np.full(self.population.features, -1)

    @abstractmethod
    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        """What fires in a batch of this size; nothing but the generator decides it."""


class Firing(Record, ABC):
    """The settings of a rule."""

    @abstractmethod
    def check(self, population: Population) -> None:
        """Refuse, with a ValueError and before any work, a population this rule cannot fire."""

    @abstractmethod
    def sampler(self, population: Population) -> Sampler:
        """The rule at work on this population."""
