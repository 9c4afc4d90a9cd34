"""Every feature fires on its own, whatever the others do.

corrected   p_i = active · decay^i / Σ_j decay^j    `active` features fire on average
published   p_i = active · decay^i / n              never rescaled: .971 instead of 5 at the defaults (seed 002)
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from unbraid.worlds.firing.cells import Cells, fire_independently
from unbraid.worlds.firing.rule import Firing, Population, Sampler


class Independent(Firing):
    kind: Literal["independent"] = "independent"
    form: Literal["corrected", "published"] = "corrected"

    def check(self, population: Population) -> None:
        population.refuse_certainty(self.sampler(population).probabilities()[0])

    def sampler(self, population: Population) -> "IndependentSampler":
        return IndependentSampler(population, rescaled=self.form == "corrected")


@dataclass(frozen=True)
class IndependentSampler(Sampler):
    population: Population
    rescaled: bool

    def probabilities(self) -> np.ndarray:
        if self.rescaled:
            return self.population.marginals()
        return self.population.shares() * (self.population.active / self.population.features)

    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        return fire_independently(rng, self._rates, size)

    @cached_property
    def _rates(self) -> np.ndarray:
        return -np.log1p(-self.probabilities())
