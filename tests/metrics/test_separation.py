"""Which head tells which factor, on heads made to tell one, several or none."""

import math

import numpy as np
import pytest
import torch

from unbraid.metrics.separation import explained, separation


def test_a_head_that_is_the_factor_is_explained_and_one_that_ignores_it_is_not(rng):
    values = torch.from_numpy(rng.integers(0, 4, 400))
    means = torch.from_numpy(rng.standard_normal((4, 3)))
    deaf = torch.from_numpy(rng.standard_normal((400, 3)))
    constant = torch.ones(400, 3, dtype=torch.double)
    found = explained(torch.stack([means[values], deaf, constant], 1)[None], values)[0]
    assert found[0].item() == pytest.approx(1)
    assert abs(found[1].item()) < 0.02
    assert found[2].item() == 0


def test_explained_is_one_less_the_ratio_of_variances_of_an_analysis_of_variance(rng):
    """ε² = 1 - MS_within / MS_total, from the one-way F: F = MS_between / MS_within."""
    from scipy.stats import f_oneway

    groups = [rng.standard_normal(size) + shift for size, shift in ((20, 0.0), (35, 1.0), (10, -0.5))]
    z, values = np.concatenate(groups), np.repeat([0, 1, 2], [20, 35, 10])
    f = f_oneway(*groups).statistic
    n, k = len(z), 3
    within = 1 / ((k - 1) * f / (n - k) + 1)  # SS_within / SS_total
    expected = 1 - within * (n - 1) / (n - k)
    found = explained(torch.from_numpy(z)[None, :, None, None], torch.from_numpy(values))
    assert found.item() == pytest.approx(expected)


def test_chance_of_what_is_explained_is_nothing_on_average_however_many_classes(rng):
    found = [
        explained(
            torch.from_numpy(rng.standard_normal((1, 60, 1, 4))), torch.from_numpy(rng.integers(0, 20, 60))
        ).item()
        for _ in range(200)
    ]
    assert abs(np.mean(found)) < 4 * np.std(found) / math.sqrt(200)


def test_tokens_without_a_value_are_left_out(rng):
    z = torch.from_numpy(rng.standard_normal((1, 50, 2, 3)))
    values = torch.from_numpy(rng.integers(0, 3, 50))
    values[::3] = -1
    torch.testing.assert_close(explained(z, values), explained(z[:, values >= 0], values[values >= 0]))
    assert explained(z, torch.zeros(50, dtype=torch.long)).isnan().all()


def test_separation_is_one_for_a_factor_a_head_nothing_for_all_alike_and_between_by_entropy():
    pure, alike = torch.tensor([[0.9, 0, 0], [0, 0.1, 0]]), torch.tensor([[0.3, 0.3, 0.3], [0.1, 0.1, 0.1]])
    half = torch.tensor([[0.4, 0.4, -0.1], [torch.nan, 0.0, 0.0]])
    assert separation(pure[None]).item() == pytest.approx(1)
    assert separation(alike[None]).item() == pytest.approx(0, abs=1e-6)
    assert separation(half[None]).item() == pytest.approx(1 - math.log(2) / math.log(3))
    assert separation(torch.cat([pure, alike])[None]).item() == pytest.approx((0.9 + 0.1) / (1 + 0.9 + 0.3))
    assert separation(pure[None, :, :1]).isnan().all()
