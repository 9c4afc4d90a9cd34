"""Features that fire together: a Gaussian z with correlated entries decides which.

    published   z ~ N(0, C) once per *batch*; p ∝ Φ(z)·decay^i with sum `active`, then every cell on its own; a sample
                in which nothing fires gets one random feature of strength 1 (seed 002; C in `covariance`)
    corrected   z ~ N(0, R) once per *sample*; feature i fires where z_i > Φ⁻¹(1 - p_i), p_i as in `independent`

In the published form no two features fire together within a batch more often than chance: what it calls correlation
is a rate that differs from batch to batch. In the corrected form R is C brought to a unit diagonal (`rank` 0), or
a_i·a_j off the diagonal, |a_i|² = `correlation`, with a_i random in the positive orthant of `rank` dimensions.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from unbraid.worlds.firing.batchwise import BatchwiseSampler
from unbraid.worlds.firing.copula import CopulaSampler
from unbraid.worlds.firing.rule import Firing, Population, Sampler

LARGEST_MATRIX = 4096
"""Most features for which the n × n matrix C is made: 128 MB and some ten seconds."""


class Correlated(Firing):
    kind: Literal["correlated"] = "correlated"
    form: Literal["corrected", "published"] = "corrected"
    rank: int = Field(default=0, ge=0)
    correlation: float | None = Field(default=None, ge=0, lt=1)

    @model_validator(mode="after")
    def refuse_what_is_not_read(self) -> Self:
        if self.form == "published" and self.rank:
            raise ValueError(f"rank is {self.rank} and the published form has none; accepted: 0, or form 'corrected'")
        if self.rank and self.correlation is None:
            raise ValueError(f"rank {self.rank} needs a correlation; accepted: at least 0 and below 1")
        if not self.rank and self.correlation is not None:
            raise ValueError(f"correlation is {self.correlation:g} and rank 0 does not read it; accepted: rank above 0")
        return self

    def check(self, population: Population) -> None:
        if self.rank > population.features:
            raise ValueError(f"rank is {self.rank}; accepted: at most the number of features, {population.features}")
        if not self.rank and population.features > LARGEST_MATRIX:
            raise ValueError(
                f"{population.features} features need a correlation matrix of as many rows; accepted: "
                f"features up to {LARGEST_MATRIX}, or form 'corrected' with a rank above 0"
            )
        population.refuse_certainty(population.marginals()[0])

    def sampler(self, population: Population) -> Sampler:
        if self.form == "published":
            return BatchwiseSampler(population)
        return CopulaSampler(population, self.rank, self.correlation or 0.0)
