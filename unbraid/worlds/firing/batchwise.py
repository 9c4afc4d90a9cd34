"""The published correlated firing: one Gaussian draw sets the rates of a whole batch (see `correlated`).

    p = active · Φ(z)·decay^i / Σ_j Φ(z_j)·decay^j,  z ~ N(0, C) once per batch; above 1 counts as 1

How often a feature fires over all batches, E_z[p_i + P(nothing fires | z) / n], has no closed form. It is the mean over
8192 draws, z and -z for 4096 z from the world's seed, which the part of p that is odd in z leaves exact.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from unbraid.randomness import stream
from unbraid.worlds.firing.cells import Cells, fire_independently, sample_order
from unbraid.worlds.firing.covariance import covariance
from unbraid.worlds.firing.rule import Population, Sampler

DRAWS, BLOCK = 4096, 512
ALMOST_ALWAYS = 1 - 1e-12  # certainty would be an infinite rate


@dataclass(frozen=True)
class BatchwiseSampler(Sampler):
    population: Population

    def batch_probabilities(self, rng: np.random.Generator) -> np.ndarray:
        """The probabilities of one batch."""
        return self._rescaled(self._draw(rng, 1))[0]

    def probabilities(self) -> np.ndarray:
        rng, total = stream(self.population.seed, "marginals"), np.zeros(self.population.features)
        for _ in range(DRAWS // BLOCK):
            latent = self._draw(rng, BLOCK)
            for mirrored in (latent, -latent):
                p = self._rescaled(mirrored)
                nothing = np.exp(np.log1p(-p).sum(1))
                total += p.sum(0) + nothing.sum() / p.shape[1]
        return total / (2 * DRAWS)

    def fire(self, rng: np.random.Generator, size: int) -> Cells:
        rates = -np.log1p(-self.batch_probabilities(rng))
        return _fill(fire_independently(rng, rates, size), rng, size, self.population.features)

    def _draw(self, rng: np.random.Generator, draws: int) -> np.ndarray:
        return rng.standard_normal((draws, self.population.features)) @ self._root.T

    def _rescaled(self, latent: np.ndarray) -> np.ndarray:
        share = ndtr(latent) * self.population.shares()
        return np.minimum(self.population.active * share / share.sum(1, keepdims=True), ALMOST_ALWAYS)

    @cached_property
    def _root(self) -> np.ndarray:
        return np.linalg.cholesky(covariance(self.population.features, self.population.seed))


def _fill(cells: Cells, rng: np.random.Generator, size: int, features: int) -> Cells:
    """One random feature at full strength for each sample in which nothing fired."""
    empty = np.flatnonzero(np.bincount(cells.samples, minlength=size) == 0)
    samples = np.concatenate([cells.samples, empty])
    chosen = np.concatenate([cells.features, rng.integers(0, features, empty.size)])
    order = sample_order(samples, size)
    return Cells(samples[order], chosen[order], order >= cells.samples.size)
