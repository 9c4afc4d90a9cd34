"""The ways to fire against brute force, numpy and scipy."""

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from unbraid.dictionaries.baselines.rules import LeastSquares, Nearest, NonNegative, fold, split

DIMENSIONS = 6


@pytest.fixture
def directions(rng):
    rows = torch.from_numpy(rng.standard_normal((2, 5, DIMENSIONS)).astype(np.float32))
    return torch.nn.functional.normalize(rows, dim=-1)


@pytest.fixture
def x(rng):
    return torch.from_numpy(rng.standard_normal((40, DIMENSIONS)).astype(np.float32))


def test_least_squares_is_numpys(directions, x):
    codes = LeastSquares.of(directions).codes(x, directions).to_dense()
    for member in range(2):
        expected = np.linalg.lstsq(directions[member].numpy().T, x.numpy().T)[0].T
        np.testing.assert_allclose(codes[member].numpy(), expected, atol=1e-4)


def test_the_nearest_centre_fires_with_its_least_squares_strength(directions, x, rng):
    lengths = torch.from_numpy(rng.uniform(0.2, 2, (2, 5)).astype(np.float32))
    codes = Nearest(lengths).codes(x, directions).to_dense().numpy()
    centres = (directions * lengths[..., None]).numpy()
    expected = np.zeros_like(codes)
    for m, b in np.ndindex(2, 40):
        nearest = np.linalg.norm(x[b].numpy() - centres[m], axis=1).argmin()
        expected[m, b, nearest] = max(x[b].numpy() @ directions[m, nearest].numpy(), 0)
    np.testing.assert_allclose(codes, expected, atol=1e-6)


def test_with_slots_the_nearest_fires_again_for_what_is_left(x):
    """Orthonormal directions: the largest coordinates, largest first, where they are positive."""
    eye = torch.eye(DIMENSIONS)[None]
    for slots in (1, 3, 6, 9):
        codes = Nearest(torch.ones(1, DIMENSIONS), slots).codes(x, eye)
        expected = np.sort(x.numpy().clip(0), axis=1)[:, ::-1][:, :slots]
        np.testing.assert_allclose(codes.values[0].numpy(), expected, atol=1e-6)
        assert (codes.l0()[0] == (x > 0).sum(1).clamp_max(slots)).all()


def test_no_feature_fires_twice_in_a_sample(directions, x):
    features = Nearest(torch.ones(2, 5), slots=5).codes(x, directions).features
    assert (features.sort(-1).values == torch.arange(5)).all()


def test_what_is_left_by_rounding_fires_nothing(directions):
    codes = Nearest(torch.ones(2, 5), slots=4).codes(3 * directions[0], directions)
    assert (codes.l0()[0] == 1).all()


def test_non_negative_least_squares_is_scipys(rng):
    parts = rng.uniform(0, 1, (2, 5, 2 * DIMENSIONS)) * (rng.uniform(size=(2, 5, 2 * DIMENSIONS)) < 0.6)
    x = rng.standard_normal((40, DIMENSIONS)).astype(np.float32)
    rule = NonNegative(torch.from_numpy(parts.astype(np.float32)))
    codes = rule.codes(torch.from_numpy(x), torch.zeros(2, 5, DIMENSIONS)).to_dense().numpy()
    halves = np.concatenate([x.clip(0), (-x).clip(0)], axis=1)
    for m, b in np.ndindex(2, 40):
        np.testing.assert_allclose(codes[m, b], nnls(parts[m].T, halves[b])[0], atol=1e-4)
    assert (codes == 0).any()


def test_fold_undoes_split(x):
    assert (split(x) >= 0).all()
    assert torch.equal(fold(split(x)), x)
