"""A Gaussian copula per sample: features that fire together, each exactly as often as it would alone.

    z_i = mixing_i · g + own · e_i,  g and e standard normal for every sample;  i fires where z_i > Φ⁻¹(1 - p_i)

Full (`rank` 0): mixing is the Cholesky factor of the correlation matrix, and own is 0. Low rank: mixing is the loadings
a, n × rank, and own = √(1 - correlation); given its factors g, a sample's features are independent, and no n × n matrix
is made. Either way a batch costs features × samples. Latents are double, so that the threads of a matrix product
cannot tip a feature over its threshold.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.blas import dtrmm  # pyright: ignore[reportAttributeAccessIssue]
from scipy.special import ndtri

from unbraid.randomness import stream
from unbraid.worlds.firing.cells import Cells
from unbraid.worlds.firing.covariance import covariance
from unbraid.worlds.firing.rule import Population, Sampler

BLOCK = 1 << 18
"""Latents made at a time, of a few samples: what a cache holds."""


@dataclass(frozen=True)
class CopulaSampler(Sampler):
    population: Population
    rank: int
    correlation: float

    def probabilities(self) -> np.ndarray:
        return self.population.marginals()

    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        rows = max(1, BLOCK // self.population.features)
        found: list[np.ndarray] = []
        for start in range(0, size, rows):
            fires = self._latents(rng, min(rows, size - start)) > self._thresholds
            found.append(np.flatnonzero(fires) + start * self.population.features)
        return Cells(*np.divmod(np.concatenate(found), self.population.features))

    @cached_property
    def mixing(self) -> np.ndarray:
        """How the shared normals make the latents: n × n, or n × rank."""
        n, seed = self.population.features, self.population.seed
        if self.rank:
            loadings = np.abs(stream(seed, "loadings").standard_normal((n, self.rank)))
            return loadings * (np.sqrt(self.correlation) / np.linalg.norm(loadings, axis=1, keepdims=True))
        matrix = covariance(n, seed)
        scale = np.sqrt(np.diag(matrix))
        return np.asfortranarray(np.linalg.cholesky(matrix / np.outer(scale, scale)))

    def _latents(self, rng: np.random.Generator, samples: int) -> np.ndarray:
        shared = rng.standard_normal((samples, self.mixing.shape[1]))
        if not self.rank:
            return dtrmm(1.0, self.mixing, shared.T, lower=1).T  # half the work of a product with a square matrix
        own = rng.standard_normal((samples, self.population.features), dtype=np.float32)
        return shared @ self.mixing.T + float(np.sqrt(1 - self.correlation)) * own

    @cached_property
    def _thresholds(self) -> np.ndarray:
        return -ndtri(self.probabilities())
