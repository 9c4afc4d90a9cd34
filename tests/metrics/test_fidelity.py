import numpy as np
import pytest
import torch
from sklearn.metrics import mean_squared_error, r2_score

from unbraid.metrics.fidelity import Moments


@pytest.fixture
def data(rng):
    """Inputs far from the origin, with dimensions of different spread, and reconstructions from good to bad."""
    x = rng.standard_normal((50, 4)) * [1, 2, 0.1, 5] + [3, -20, 0, 7]
    return x, np.stack([x + noise * rng.standard_normal(x.shape) for noise in (0.0, 0.5, 10.0)])


def moments(x, reconstruction):
    return Moments.of(torch.from_numpy(x), torch.from_numpy(reconstruction))


def test_explained_variance_is_scikit_learns_variance_weighted_r2(data):
    x, reconstructions = data
    expected = [r2_score(x, r, multioutput="variance_weighted") for r in reconstructions]
    np.testing.assert_allclose(moments(x, reconstructions).explained_variance().numpy(), expected, rtol=1e-9)


def test_reconstruction_error_is_scikit_learns_mean_squared_error(data):
    x, reconstructions = data
    expected = [mean_squared_error(x, r) for r in reconstructions]
    np.testing.assert_allclose(moments(x, reconstructions).reconstruction_error().numpy(), expected, rtol=1e-9)


def test_moments_of_parts_add_up(data):
    x, reconstructions = data
    parts = moments(x[:7], reconstructions[:, :7]) + moments(x[7:], reconstructions[:, 7:])
    whole = moments(x, reconstructions)
    np.testing.assert_allclose(parts.explained_variance().numpy(), whole.explained_variance().numpy(), rtol=1e-9)
    assert parts.samples == whole.samples == 50


def test_a_perfect_reconstruction_explains_all_and_the_mean_explains_nothing(data):
    x, _ = data
    answers = np.stack([x, np.broadcast_to(x.mean(0), x.shape)])
    np.testing.assert_allclose(moments(x, answers).explained_variance().numpy(), [1, 0], atol=1e-9)
    assert moments(x, answers).reconstruction_error()[1].item() == pytest.approx(moments(x, answers).variance().item())


def test_variance_is_the_mean_variance_of_a_dimension(data):
    x, reconstructions = data
    assert moments(x, reconstructions).variance().item() == pytest.approx(x.var(0).mean())


def test_small_variance_about_a_large_mean_survives_float32():
    x = (1000 + 0.01 * np.random.default_rng(0).standard_normal((4000, 3))).astype(np.float32)
    found = Moments.of(torch.from_numpy(x), torch.from_numpy(x)[None]).variance().item()
    assert found == pytest.approx(x.astype(float).var(0).mean(), rel=1e-4)
