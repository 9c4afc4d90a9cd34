"""The seed's diversity block: its exact text, and every number against loops."""

from itertools import permutations

import numpy as np
import pytest
import torch

from unbraid.metrics.diversity import Diversity, Spread, causal_spread, diversity

PUBLISHED = """\
[DIVERSITY] μ_dist: 0.4962 | φ_std: 0.4827 | KL_std: 0.0134
            KL range: [0.0002, 0.0896] | mean: 0.0192
            σ range: [0.002629, 6.713892] | mean: 1.005399"""
"""At step 20000, as the seed prints it."""


def test_the_text_is_the_seeds():
    found = Diversity(
        mean_distance=0.49623,
        frame_deviation=0.48271,
        kl=Spread(least=0.00021, most=0.08961, mean=0.01921, std=0.01342),
        causal_kl=Spread(0.0, 0.0, 0.0, 0.0),
        variance_least=0.0026291,
        variance_most=6.7138921,
        variance_mean=1.0053991,
    )
    assert str(found) == PUBLISHED


@pytest.fixture
def beliefs(rng):
    """Five tokens in four dimensions, two heads."""
    mean, variance, frame = rng.normal(size=(5, 4)), rng.gamma(2, size=(5, 4)), rng.normal(size=(5, 3))
    return [torch.from_numpy(each) for each in (mean, variance, frame, rng.gamma(1, size=(2, 5, 5)))]


def test_distances_frames_and_variances_are_what_loops_find(beliefs):
    found = diversity(*beliefs)
    mean, variance, frame, _ = (each.numpy() for each in beliefs)
    pairs = list(permutations(range(5), 2))
    assert found.mean_distance == pytest.approx(np.mean([np.linalg.norm(mean[i] - mean[j]) for i, j in pairs]))
    assert found.frame_deviation == pytest.approx(np.mean([np.std(frame[:, axis], ddof=1) for axis in range(3)]))
    assert (found.variance_least, found.variance_most) == (variance.min(), variance.max())
    assert found.variance_mean == pytest.approx(variance.mean())


def test_divergences_are_averaged_over_heads_and_published_ones_include_later_keys(beliefs):
    found = diversity(*beliefs)
    kl = beliefs[3].numpy().mean(0)
    every = [kl[i, j] for i, j in permutations(range(5), 2)]
    before = [kl[i, j] for i in range(5) for j in range(i)]
    for spread, values in ((found.kl, every), (found.causal_kl, before)):
        expected = (min(values), max(values), np.mean(values), np.std(values, ddof=1))
        assert (spread.least, spread.most, spread.mean, spread.std) == pytest.approx(expected)


def test_the_spread_of_each_head_is_over_its_own_causal_pairs(rng):
    kl = rng.gamma(1, size=(2, 3, 2, 4, 4))  # m b h t s
    mean, std = causal_spread(torch.from_numpy(kl))
    values = [kl[1, b, 0, i, j] for b in range(3) for i in range(4) for j in range(i)]
    assert mean[1, 0].item() == pytest.approx(np.mean(values))
    assert std[1, 0].item() == pytest.approx(np.std(values, ddof=1))
