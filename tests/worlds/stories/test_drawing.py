"""Choices are as likely as they say, and never what is not allowed."""

import numpy as np
import pytest
from scipy import stats

from unbraid.worlds.stories.drawing import any_of, at, choose, choose_among, last, one_of, shuffle, walk

SAMPLES = 60_000


def dice(rng, *shape):
    return rng.random(shape, dtype=np.float32)


def are_even(counts):
    return stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("count", [2, 5, 6])
def test_each_of_so_many_is_as_likely(rng, count):
    chosen = choose(dice(rng, SAMPLES), count)
    assert are_even(np.bincount(chosen, minlength=count))


@pytest.mark.parametrize("count", range(1, 70))
def test_the_largest_number_below_one_does_not_choose_one_too_many(count):
    largest = np.nextafter(np.float32(1), np.float32(0))
    assert choose(np.array([largest]), count) == count - 1
    assert choose_among(np.array([largest]), np.ones((1, count), bool)) == count - 1


def test_each_of_those_allowed_is_as_likely_and_no_other(rng):
    allowed = np.array([False, True, True, False, True, False])
    chosen = choose_among(dice(rng, SAMPLES), np.broadcast_to(allowed, (SAMPLES, 6)))
    counts = np.bincount(chosen, minlength=6)
    assert not counts[~allowed].any()
    assert are_even(counts[allowed])


def test_every_order_is_as_likely(rng):
    orders = shuffle(dice(rng, SAMPLES, 3))
    assert are_even(np.unique(orders, axis=0, return_counts=True)[1])
    assert len(np.unique(orders, axis=0)) == 6


def test_entries_and_marks_are_those_that_the_index_names():
    table = np.arange(12).reshape(2, 2, 3)
    assert at(table, np.array([[0, 2], [1, 0]])).tolist() == [[0, 5], [7, 9]]
    assert one_of(np.array([2, -1]), 3).tolist() == [[False, False, True], [False, False, False]]
    assert any_of(np.array([[2, -1, 0], [-1, -1, -1]]), 3).tolist() == [[True, False, True], [False, False, False]]


def test_the_last_time_is_told_before_the_first_statement_and_after_each():
    happens = np.array([[False, True, False, True]])
    assert last(happens).tolist() == [[-1, -1, 1, 1, 3]]
    assert last(np.stack([happens, ~happens], axis=2))[0, :, 1].tolist() == [-1, 0, 0, 2, 2]


def test_a_walk_starts_nowhere_and_then_leads_to_any_other_place(rng):
    movers = rng.integers(0, 2, (SAMPLES, 3))
    states = walk(movers, dice(rng, SAMPLES, 3), people=2, places=4)
    assert (states[:, 0] == -1).all()
    for n in range(3):
        before, after, mover = states[:, n], states[:, n + 1], movers[:, n]
        assert np.array_equal(at(before, 1 - mover), at(after, 1 - mover))
        came, went = at(before, mover), at(after, mover)
        assert are_even(np.bincount(went[came < 0], minlength=4)) or not (came < 0).any()
        known = came >= 0
        assert (went[known] != came[known]).all()
        if known.any():
            assert are_even(np.bincount((went[known] - came[known]) % 4, minlength=4)[1:])
