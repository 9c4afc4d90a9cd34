"""The mean absolute correlation over all pairs, against numpy, dense and by lists, in one block and in many."""

import numpy as np
import pytest
import torch

from unbraid.metrics import correlation
from unbraid.metrics.correlation import mean_correlation


def some_codes(rng, density, members=2, samples=60, features=17):
    fires = rng.random((members, samples, features)) < density
    return np.where(fires, rng.random((members, samples, features)), 0)


def by_numpy(values):
    """Of the features that vary, all pairs at once."""
    varying = values[:, values.std(0) > 0]
    if varying.shape[1] < 2:
        return 0.0
    table = np.abs(np.corrcoef(varying.T))
    return table[np.triu_indices(len(table), 1)].mean()


def listed(values):
    """The same codes as lists of what fired, slots in any order."""
    dense = torch.from_numpy(values)
    slots = max(1, int((dense != 0).sum(-1).max()))
    features = (dense != 0).double().topk(slots, dim=-1).indices.flip(-1)
    return dense.gather(-1, features), features, dense.shape[-1]


@pytest.mark.parametrize("block", [1024, 5, 1])
@pytest.mark.parametrize("density", [0.9, 0.4, 0.02])
def test_it_is_the_mean_of_all_pairs(rng, monkeypatch, density, block):
    monkeypatch.setattr(correlation, "BLOCK", block)
    values = some_codes(rng, density)
    expected = [by_numpy(own) for own in values]
    for codes in ((torch.from_numpy(values),), listed(values)):
        np.testing.assert_allclose(mean_correlation(*codes).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("threshold", [0.0, 1.1], ids=["blocks", "lists"])
def test_both_ways_agree_at_any_density(rng, monkeypatch, threshold):
    monkeypatch.setattr(correlation, "SPARSE", threshold)
    for density in (0.02, 0.5):
        values = some_codes(rng, density)
        found = mean_correlation(torch.from_numpy(values))
        np.testing.assert_allclose(found.numpy(), [by_numpy(own) for own in values], rtol=1e-5)


def test_what_never_fires_or_fires_always_alike_is_left_out(rng):
    values = some_codes(rng, 0.5, members=1, features=4)
    with_others = np.concatenate([values, np.zeros((1, 60, 3)), np.full((1, 60, 1), 0.7)], axis=2)
    ours, theirs = (mean_correlation(torch.from_numpy(each)) for each in (values, with_others))
    assert ours.tolist() == pytest.approx(theirs.tolist())
    assert mean_correlation(torch.zeros(1, 8, 5)).tolist() == [0.0]
    assert mean_correlation(torch.from_numpy(values[..., :1])).tolist() == [0.0]


def test_independent_features_have_the_noise_of_their_samples():
    """|r| of independent Gaussians is √(2 / (π b)) on average."""
    values = torch.randn(1, 4000, 60, generator=torch.Generator().manual_seed(0))
    assert mean_correlation(values).item() == pytest.approx((2 / (np.pi * 4000)) ** 0.5, rel=0.05)


@pytest.mark.parametrize("density", [0.9, 0.02])
def test_no_matrix_of_all_pairs_is_made(rng, monkeypatch, density):
    """Nothing that is multiplied out has more than a block of features on one side."""
    monkeypatch.setattr(correlation, "BLOCK", 4)
    made: list[tuple[int, ...]] = []
    products, sparse = torch.Tensor.__matmul__, correlation._together

    def spied(a, b):
        made.append((a.shape[0], b.shape[1]))
        return products(a, b)

    def watched(fired, width):
        for first, second, data in sparse(fired, width):
            made.append((int(np.ptp(first)) + 1 if len(first) else 0, width))
            yield first, second, data

    monkeypatch.setattr(torch.Tensor, "__matmul__", spied)
    monkeypatch.setattr(correlation, "_together", watched)
    mean_correlation(torch.from_numpy(some_codes(rng, density, members=1)))
    assert len(made) > 1
    assert all(height <= 4 for height, _ in made)
