"""Features that presuppose others: a child fires only with its parent, and siblings may exclude each other.

    the first n - children·⌊n / (children + 1)⌋ features have no parent and fire on their own, p_i ∝ decay^i;
    ⌊n / (children + 1)⌋ of them, the first, are parents, and the children follow, all of one parent, then of the next
    P(child | parent) = child_probability, each child on its own
                      = child_probability / children, at most one of them, when `exclusive`

rescaled so that `active` features, parents and children, fire on average. A draw costs what fires.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field

from unbraid.worlds.firing.base import Cells, Firing, Population, Sampler, fire_independently, sample_order


class Hierarchy(Firing):
    """Planted features with parents: a child fires only in samples in which its parent fires.

    Of n features, ⌊n / (children + 1)⌋ are parents. Features without a parent come first, then the children, parent by
    parent; `Superposition.parents` lists them. Dictionaries on such a world may show absorption.

    Examples
    --------
    >>> import unbraid as ub
    >>> rule = ub.Hierarchy(children=2)
    >>> world = ub.Superposition(dimensions=8, n_features=6, decay=0.9, active=2.0, firing=rule)
    >>> world.parents.tolist()
    [-1, -1, 0, 0, 1, 1]
    """

    kind: Literal["hierarchy"] = "hierarchy"
    """The rule's name in a configuration."""
    children: int = Field(default=4, ge=1)
    """Number of children of each parent; more leave fewer features without a parent."""
    child_probability: float = Field(default=0.5, gt=0, le=1)
    """Probability that a child fires when its parent does; at 1, all children fire whenever their parent does."""
    exclusive: bool = False
    """Whether at most one child of a parent fires at a time: one of them does, with `child_probability`."""

    def check(self, population: Population) -> None:
        if self.children >= population.n_features:
            raise ValueError(
                f"a parent with {self.children} children needs {self.children + 1} features and there are "
                f"{population.n_features}; accepted: children below {population.n_features}"
            )
        population.check_rate(self.sampler(population).probabilities()[0])

    def sampler(self, population: Population) -> "HierarchySampler":
        return HierarchySampler(population, self)


@dataclass(frozen=True)
class HierarchySampler(Sampler):
    population: Population
    rule: Hierarchy

    @property
    def families(self) -> int:
        return self.population.n_features // (self.rule.children + 1)

    @property
    def roots(self) -> int:
        """How many features have no parent; they come first."""
        return self.population.n_features - self.families * self.rule.children

    def parents(self) -> np.ndarray:
        ids = np.arange(self.population.n_features)
        return np.where(ids < self.roots, -1, (ids - self.roots) // self.rule.children)

    def probabilities(self) -> np.ndarray:
        share = self.population.shares()
        given_parent = self.rule.child_probability / (self.rule.children if self.rule.exclusive else 1)
        share[self.roots :] = share[self.parents()[self.roots :]] * given_parent
        return self.population.active * share / share.sum()

    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        above = fire_independently(rng, self._rates, size)
        having = np.flatnonzero(above.features < self.families)  # which of those that fired are parents
        which, child = self._choose(rng, having.size)
        samples = np.concatenate([above.samples, above.samples[having[which]]])
        first_child = self.roots + above.features[having[which]] * self.rule.children
        features = np.concatenate([above.features, first_child + child])
        order = sample_order(samples, size)
        return Cells(samples[order], features[order])

    def _choose(self, rng: np.random.Generator, parents: int) -> tuple[np.ndarray, np.ndarray]:
        """Which of the parents that fired have which of their children firing, as two lists."""
        if self.rule.exclusive:
            which = np.flatnonzero(rng.random(parents) < self.rule.child_probability)
            return which, rng.integers(0, self.rule.children, which.size)
        which, child = np.nonzero(rng.random((parents, self.rule.children)) < self.rule.child_probability)
        return which, child

    @cached_property
    def _rates(self) -> np.ndarray:
        return -np.log1p(-self.probabilities()[: self.roots])
