"""Sequences of beliefs and frames drawn at random, for the tests of the gauge model's reference."""

import numpy as np
import torch

from tests.models.gauge.independent import frames, heads_of, slices_of
from tests.models.gauge.independent_energy import Surroundings

HEADS = heads_of("2x0e + 1x1e + 1x2e")
WIDTH = 10


def spread(rng, size):
    half = rng.standard_normal((size, size))
    return half @ half.T / size + 0.5 * np.eye(size)


def blocks(rng, heads):
    whole = np.zeros((sum(2 * degree + 1 for degree in heads),) * 2)
    for own in slices_of(heads):
        whole[own, own] = spread(rng, own.stop - own.start)
    return whole


def sequence(rng, length=5, heads=HEADS):
    """Means, covariances and frames drawn at random."""
    width = sum(2 * degree + 1 for degree in heads)
    return (
        rng.standard_normal((length, width)),
        np.array([blocks(rng, heads) for _ in range(length)]),
        rng.standard_normal((length, 3)),
    )


def surroundings(rng, token=3, prior_weight=0.7, weight=1.3, kappa=5.0, heads=HEADS):
    means, covariances, phi = sequence(rng, token + 1, heads)
    own = slice(0, token + 1)
    around = Surroundings(
        heads,
        frames(phi, heads)[token],
        means[own],
        covariances[own],
        frames(-phi, heads)[own],
        rng.standard_normal(means.shape[1]),
        blocks(rng, heads),
        prior_weight,
        weight,
        kappa,
    )
    return around, means[token], covariances[token]


def as_torch(mean, covariance):
    return torch.distributions.MultivariateNormal(torch.from_numpy(mean), torch.from_numpy(covariance))
