"""Features that fire together: a Gaussian z with correlated entries decides which.

    published   z ~ N(0, C) once per *batch*; p ∝ Φ(z)·decay^i with sum `active`, then every cell on its own; a sample
                in which nothing fires gets one random feature of strength 1
    corrected   z ~ N(0, R) once per *sample*; feature i fires where z_i > Φ⁻¹(1 - p_i), p_i as in `Independent`

In the published form (the superposition study's) no two features fire together within a batch more often than chance:
what it calls correlation is a rate that differs from batch to batch. In the corrected form R is C brought to a unit
diagonal (`rank` 0), or a_i·a_j off the diagonal, |a_i|² = `correlation`, with a_i random in the positive orthant of
`rank` dimensions. C is random, positive everywhere, and only just positive definite:

    C = (U + Uᵀ)/2 - 1.001·min(λ_min, 0)·I,  U uniform on (0, 1), λ_min the least eigenvalue of (U + Uᵀ)/2

At 512 features λ_min ≈ -9.1, so that the correlation of a pair is only about .5 / 9.6 ≈ .05.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator
from scipy.special import ndtr, ndtri

from unbraid.randomness import stream
from unbraid.worlds.firing.base import Cells, Firing, Population, Sampler, fire_independently, sample_order

LARGEST_MATRIX = 4096
"""Most features for which the n × n matrix C is made: 128 MB and some ten seconds."""
LATENTS = 1 << 18
"""Latents of the corrected form made at a time, of a few samples: what a cache holds."""
DRAWS, DRAWS_AT_A_TIME = 4096, 512
"""Of the published form's latents, from which its marginal probabilities are estimated."""
ALMOST_ALWAYS = 1 - 1e-12  # certainty would be an infinite rate


class Correlated(Firing):
    """Planted features that fire together more often than by chance.

    Each sample draws a Gaussian vector with correlated entries; feature i fires where its entry is high enough. Each
    feature fires exactly as often as under `Independent`. With `rank` 0 the correlations are a random n × n matrix,
    for at most 4096 features; a pair at 512 features has about 0.05. With `rank` above 0 they come from that many
    shared factors.

    Examples
    --------
    >>> import unbraid as ub
    >>> rule = ub.Correlated(rank=1, correlation=0.9)
    >>> world = ub.Superposition(dimensions=4, n_features=2, decay=1.0, active=1.0, firing=rule)
    >>> fired = world.batch(position=0, size=10_000).truth.to_dense()[0] > 0
    >>> float(fired.all(1).float().mean()) > 0.3  # chance is 0.5² = 0.25
    True
    """

    kind: Literal["correlated"] = "correlated"
    """The rule's name in a configuration."""
    form: Literal["corrected", "published"] = "corrected"
    """published: one Gaussian draw sets the rates of a whole batch, as in the superposition study's code."""
    rank: int = Field(default=0, ge=0)
    """Number of shared factors; more make pairs differ more in how often they fire together. 0: an n × n matrix."""
    correlation: float | None = Field(default=None, ge=0, lt=1)
    """Share of variance that the factors explain, from 0 to below 1; higher fires together more. Needed if rank > 0."""

    @model_validator(mode="after")
    def check_settings(self) -> Self:
        if self.form == "published" and self.rank:
            raise ValueError(f"rank is {self.rank} and the published form has none; accepted: 0, or form 'corrected'")
        if self.rank and self.correlation is None:
            raise ValueError(f"rank {self.rank} needs a correlation; accepted: at least 0 and below 1")
        if not self.rank and self.correlation is not None:
            raise ValueError(f"correlation is {self.correlation:g} and rank 0 does not read it; accepted: rank above 0")
        return self

    def check(self, population: Population) -> None:
        if self.rank > population.n_features:
            raise ValueError(f"rank is {self.rank}; accepted: at most the number of features, {population.n_features}")
        if not self.rank and population.n_features > LARGEST_MATRIX:
            raise ValueError(
                f"{population.n_features} features need a correlation matrix of as many rows; accepted: "
                f"n_features up to {LARGEST_MATRIX}, or form 'corrected' with a rank above 0"
            )
        population.check_rate(population.marginals()[0])

    def sampler(self, population: Population) -> Sampler:
        if self.form == "published":
            return BatchwiseSampler(population)
        return CopulaSampler(population, self.rank, self.correlation or 0.0)


def covariance(n_features: int, seed: int) -> np.ndarray:
    """C, always the same for a world's seed."""
    from scipy.linalg import eigvalsh  # every command would wait for it, and only these worlds ask

    uniform = stream(seed, "covariance").random((n_features, n_features))
    symmetric = (uniform + uniform.T) / 2
    least = eigvalsh(symmetric, subset_by_index=(0, 0))[0]
    return symmetric - 1.001 * min(least, 0.0) * np.eye(n_features)


@dataclass(frozen=True)
class CopulaSampler(Sampler):
    """The corrected form: a Gaussian copula per sample, so that each feature fires exactly as often as it would alone.

        z_i = mixing_i · g + own · e_i,  g and e standard normal for every sample;  i fires where z_i > Φ⁻¹(1 - p_i)

    Full (`rank` 0): mixing is the Cholesky factor of the correlation matrix, and own is 0. Low rank: mixing is the
    loadings a, n × rank, and own = √(1 - correlation); given its factors g, a sample's features are independent.
    Either way a batch costs features × samples. Latents are double, so that the threads of a matrix product cannot tip
    a feature over its threshold.
    """

    population: Population
    rank: int
    correlation: float

    def probabilities(self) -> np.ndarray:
        return self.population.marginals()

    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        n = self.population.n_features
        rows = max(1, LATENTS // n)
        fired: list[np.ndarray] = []
        for start in range(0, size, rows):
            fires = self._latents(rng, min(rows, size - start)) > self._thresholds
            fired.append(np.flatnonzero(fires) + start * n)
        return Cells(*np.divmod(np.concatenate(fired), n))

    @cached_property
    def mixing(self) -> np.ndarray:
        """How the shared normals make the latents: n × n, or n × rank."""
        n, seed = self.population.n_features, self.population.seed
        if self.rank:
            loadings = np.abs(stream(seed, "loadings").standard_normal((n, self.rank)))
            return loadings * (np.sqrt(self.correlation) / np.linalg.norm(loadings, axis=1, keepdims=True))
        matrix = covariance(n, seed)
        scale = np.sqrt(np.diag(matrix))
        return np.asfortranarray(np.linalg.cholesky(matrix / np.outer(scale, scale)))

    def _latents(self, rng: np.random.Generator, samples: int) -> np.ndarray:
        from scipy.linalg.blas import dtrmm  # pyright: ignore[reportAttributeAccessIssue]

        shared = rng.standard_normal((samples, self.mixing.shape[1]))
        if not self.rank:
            return dtrmm(1.0, self.mixing, shared.T, lower=1).T  # half the work of a product with a square matrix
        own = rng.standard_normal((samples, self.population.n_features), dtype=np.float32)
        return shared @ self.mixing.T + float(np.sqrt(1 - self.correlation)) * own

    @cached_property
    def _thresholds(self) -> np.ndarray:
        return -ndtri(self.probabilities())


@dataclass(frozen=True)
class BatchwiseSampler(Sampler):
    """The published form: one Gaussian draw sets the rates of a whole batch.

        p = active · Φ(z)·decay^i / Σ_j Φ(z_j)·decay^j,  z ~ N(0, C) once per batch; above 1 counts as 1

    How often a feature fires over all batches, E_z[p_i + P(nothing fires | z) / n], has no closed form. It is the mean
    over 8192 draws, z and -z for 4096 z from the world's seed, which the part of p that is odd in z leaves exact.
    """

    population: Population

    def batch_probabilities(self, rng: np.random.Generator) -> np.ndarray:
        """The probabilities of one batch."""
        return self._rescaled(self._draw(rng, 1))[0]

    def probabilities(self) -> np.ndarray:
        rng, total = stream(self.population.seed, "marginals"), np.zeros(self.population.n_features)
        for _ in range(DRAWS // DRAWS_AT_A_TIME):
            latent = self._draw(rng, DRAWS_AT_A_TIME)
            for mirrored in (latent, -latent):
                p = self._rescaled(mirrored)
                nothing = np.exp(np.log1p(-p).sum(1))
                total += p.sum(0) + nothing.sum() / p.shape[1]
        return total / (2 * DRAWS)

    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        rates = -np.log1p(-self.batch_probabilities(rng))
        return _fill_empty(fire_independently(rng, rates, size), rng, size, self.population.n_features)

    def _draw(self, rng: np.random.Generator, draws: int) -> np.ndarray:
        return rng.standard_normal((draws, self.population.n_features)) @ self._root.T

    def _rescaled(self, latent: np.ndarray) -> np.ndarray:
        share = ndtr(latent) * self.population.shares()
        return np.minimum(self.population.active * share / share.sum(1, keepdims=True), ALMOST_ALWAYS)

    @cached_property
    def _root(self) -> np.ndarray:
        return np.linalg.cholesky(covariance(self.population.n_features, self.population.seed))


def _fill_empty(cells: Cells, rng: np.random.Generator, size: int, n_features: int) -> Cells:
    """One random feature at full strength for each sample in which nothing fired."""
    empty = np.flatnonzero(np.bincount(cells.samples, minlength=size) == 0)
    samples = np.concatenate([cells.samples, empty])
    chosen = np.concatenate([cells.features, rng.integers(0, n_features, empty.size)])
    order = sample_order(samples, size)
    return Cells(samples[order], chosen[order], order >= cells.samples.size)
