"""Frames turn irreps as e3nn's Wigner matrices and the matrix exponential do."""

import numpy as np
import pytest
import torch
from e3nn import o3

from tests.models.gauge import independent
from unbraid.models.gauge.frames import compose, generators, taylor, turns

DEGREES = range(6)


@pytest.mark.parametrize("degree", DEGREES)
def test_generators_are_the_textbooks(degree):
    np.testing.assert_allclose(generators(degree), independent.generators(degree), atol=1e-13)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 0.3, 1.0, np.pi])
@pytest.mark.parametrize("degree", DEGREES)
def test_a_turn_is_the_exponential_and_e3nns_wigner_matrix(degree, scale, rng):
    phi = rng.standard_normal((4, 3))
    phi = torch.from_numpy(scale * phi / np.linalg.norm(phi, axis=1, keepdims=True))
    turned = turns(phi, {degree})[degree]
    exact = torch.matrix_exp(torch.einsum("na,aij->nij", phi, generators(degree)))
    torch.testing.assert_close(turned, exact, rtol=0, atol=1e-13)
    angles = o3.matrix_to_angles(turns(phi, {1})[1])
    torch.testing.assert_close(turned, o3.wigner_D(degree, *angles), rtol=0, atol=3e-6)


def test_gradients_are_exact_where_nothing_is_turned():
    """d exp(φ·G)/dφ_a at 0 is G_a."""
    phi = torch.zeros(3, dtype=torch.float64)
    slope = torch.autograd.functional.jacobian(lambda x: turns(x, {3})[3], phi)
    torch.testing.assert_close(slope, generators(3).permute(1, 2, 0), rtol=0, atol=1e-9)


def test_the_published_series_is_no_rotation_far_out(rng):
    phi = torch.from_numpy(rng.standard_normal((5, 3)))
    expected = np.stack([independent.frames(one[None], [2], independent.taylor)[0] for one in phi.numpy()])
    np.testing.assert_allclose(taylor(phi, 2), expected, atol=1e-12)
    far = taylor(3 * phi, 2)
    assert (far @ far.mT - torch.eye(5)).abs().max() > 1


def test_turns_compose_and_the_short_way_is_taken(rng):
    first, second = (torch.from_numpy(2 * rng.standard_normal((50, 3))) for _ in range(2))
    both = compose(first, second)
    assert both.norm(dim=-1).max() <= np.pi + 1e-12
    for degree in (1, 2):
        found = [turns(phi, {degree})[degree] for phi in (first, second, both)]
        torch.testing.assert_close(found[0] @ found[1], found[2], rtol=0, atol=1e-12)
    torch.testing.assert_close(compose(0.1 * first, torch.zeros(3).double()), 0.1 * first, rtol=0, atol=1e-9)
