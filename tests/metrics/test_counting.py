"""Counting tokens and pairs, against the same by hand."""

import math

import numpy as np
import pytest

from unbraid.metrics.counting import bigram_surprise, unigram_surprise

TRAINING = np.array([1, 2, 1, 2, 1, 3])  # 1: thrice, 2: twice, 3: once; of four tokens that can occur


def test_tokens_are_counted_and_smoothed_by_one():
    predicted = np.array([3, 1, 4])
    assert unigram_surprise(TRAINING, predicted, 5) == pytest.approx(-(math.log(4 / 10) + math.log(1 / 10)) / 2)


def test_pairs_are_counted_as_witten_and_bell_do():
    """1 is followed by 2, 2, 3: three times, two different; 2 twice by 1; 3 and 4 by none."""
    p = {1: 4 / 10, 2: 3 / 10, 3: 2 / 10, 4: 1 / 10}
    by_hand = {
        (1, 2): (2 + 2 * p[2]) / 5,
        (1, 4): (0 + 2 * p[4]) / 5,
        (2, 1): (2 + 1 * p[1]) / 3,
        (3, 1): p[1],
        (4, 4): p[4],
    }
    for (before, after), share in by_hand.items():
        assert bigram_surprise(TRAINING, np.array([before, after]), 5) == pytest.approx(-math.log(share)), (
            before,
            after,
        )


def test_the_shares_after_any_token_sum_to_one():
    for before in (1, 2, 3, 4):
        shares = [math.exp(-bigram_surprise(TRAINING, np.array([before, after]), 5)) for after in (1, 2, 3, 4)]
        assert sum(shares) == pytest.approx(1)


def test_the_mean_is_over_all_tokens_but_the_first():
    predicted = np.array([1, 2, 1, 4])
    each = [bigram_surprise(TRAINING, predicted[i : i + 2], 5) for i in range(3)]
    assert bigram_surprise(TRAINING, predicted, 5) == pytest.approx(sum(each) / 3)
