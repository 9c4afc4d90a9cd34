"""Evenness and clusters against closed forms: lattices, uniform points, points in few places."""

import numpy as np
import pytest

from unbraid.metrics.clustering import clusters, evenness, hopkins, occupancy_entropy, uniform_in_hull

CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def test_the_entropy_of_equal_shares_is_the_logarithm_of_their_number():
    points = np.repeat(CORNERS, 25, axis=0)
    assert occupancy_entropy(points, np.zeros(2), 1.0, 8) == pytest.approx(np.log(4))
    uneven = np.repeat(CORNERS, [70, 10, 10, 10], axis=0)
    assert occupancy_entropy(uneven, np.zeros(2), 1.0, 8) == pytest.approx(-0.7 * np.log(0.7) - 0.3 * np.log(0.1))


def test_evenness_is_one_for_uniform_points_and_the_ratio_of_entropies_for_four_places(rng):
    assert evenness(rng.random((4096, 2)), rng) == pytest.approx(1, abs=0.01)
    points = np.repeat(CORNERS, 512, axis=0)
    cells = 256  # of 2048 points, 8 a cell; uniform points fall short of log(cells) by (cells - 1) / 2n, Miller 1955
    assert evenness(points, rng) == pytest.approx(np.log(4) / (np.log(cells) - 255 / 4096), abs=0.002)


def test_evenness_does_not_depend_on_scale_or_place(rng):
    points = rng.standard_normal((1024, 2))
    moved = points * 37.0 + 5.0
    found = [evenness(each, np.random.default_rng(0)) for each in (points, moved)]
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    assert found[0] < 0.97  # a heap in the middle is not even


def test_hopkins_is_half_for_uniform_points_a_seventh_for_a_lattice_and_one_for_few_places(rng):
    """For m uniform points and places it is Beta(m, m): a deviation of .018 for 400. The mean square distance to the
    nearest of a unit lattice is 1/6, and that between its points 1."""
    assert hopkins(rng.random((4000, 2)), rng) == pytest.approx(0.5, abs=4 * 0.018)
    lattice = np.stack(np.meshgrid(np.arange(60.0), np.arange(60.0)), -1).reshape(-1, 2)
    assert hopkins(lattice, rng) == pytest.approx(1 / 7, abs=0.02)
    assert hopkins(np.repeat(CORNERS, 100, axis=0), rng) == 1


def test_clusters_are_counted_with_their_share(rng):
    centres = 100.0 * np.arange(8)[:, None] * np.ones(2)
    heaps = np.concatenate([rng.standard_normal((5, 2)) + centre for centre in centres])
    assert clusters(heaps) == (8, 1.0)
    alone = np.stack([1e4 * 3.0 ** np.arange(10), np.zeros(10)], 1)  # each farther from the rest than those before
    assert clusters(np.concatenate([heaps, alone])) == (8, 0.8)
    assert clusters(heaps[:4]) == (0, 0.0)


def test_uniform_points_fill_a_triangle_evenly(rng):
    """Its mean is the mean of the corners; a quarter lies in the triangle that halves its sides at one corner."""
    corners = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    drawn = uniform_in_hull(corners, 20_000, rng)
    np.testing.assert_allclose(drawn.mean(0), corners.mean(0), atol=0.02)
    assert (drawn[:, 0] / 2 + drawn[:, 1] < 0.5).mean() == pytest.approx(0.25, abs=0.015)
