"""Losses from logits against torch and scipy, and the shares recovered by hand.
Counting tokens and pairs, against the same by hand.
"""

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy

from unbraid.metrics.language import (
    Losses,
    bigram_surprise,
    counted,
    errors,
    joined,
    log_probabilities,
    losses,
    recovered,
    unigram_surprise,
)


@pytest.fixture
def case():
    torch.manual_seed(0)
    kept = torch.tensor([[False, True, True, True, False], [False, True, False, True, True]])
    return torch.randn(2, 5, 7), torch.randn(2, 5, 7), torch.randint(0, 7, (2, 5)), kept


def test_only_a_prediction_of_text_from_text_is_counted(case):
    *_, kept = case
    assert counted(kept).tolist() == [[False, True, True, False], [False, False, False, True]]


def test_losses_are_torchs_and_scipys(case):
    clean, changed, tokens, kept = case
    where = counted(kept)
    found = losses(log_probabilities(clean, where), log_probabilities(changed, where), tokens, where)
    places = [[(0, 1), (0, 2)], [(1, 3)]]
    for window, some in enumerate(places):
        surprise = sum(torch.nn.functional.cross_entropy(changed[b, t], tokens[b, t + 1]).item() for b, t in some)
        apart = sum(entropy(clean[b, t].softmax(-1).numpy(), changed[b, t].softmax(-1).numpy()) for b, t in some)
        assert found.tokens[window] == len(some)
        assert found.cross_entropy[window] == pytest.approx(surprise, rel=1e-5)
        assert found.divergence[window] == pytest.approx(apart, rel=1e-4)


def part(tokens, surprise, apart):
    return Losses(*(np.array(each, float) for each in (tokens, surprise, apart)))


def test_shares_recovered_by_hand():
    clean, found, worst = part([2, 2], [1, 3], [0, 0]), part([2, 2], [2, 4], [1, 0]), part([2, 2], [6, 6], [3, 1])
    expected = {"ce": 1.5, "kl": 0.25, "loss_recovered": (12 - 6) / (12 - 4), "kl_recovered": 0.75}
    assert recovered(clean, found, worst) == pytest.approx(expected)
    assert recovered(clean, clean, worst)["loss_recovered"] == 1
    assert recovered(clean, worst, worst)["loss_recovered"] == 0
    assert np.isnan(recovered(clean, found, clean)["loss_recovered"])


def test_windows_after_one_another():
    both = joined([part([1], [2], [3]), part([4], [5], [6])])
    assert (both.tokens.tolist(), both.cross_entropy.tolist(), both.divergence.tolist()) == ([1, 4], [2, 5], [3, 6])


def test_the_error_is_that_of_a_mean_over_windows():
    """With as many tokens in every window the cross-entropy is a mean: its error is the standard deviation over √n."""
    rng = np.random.default_rng(0)
    each = rng.normal(10, 2, 400)
    one = part(np.ones(400), each, each)
    found = errors(one, one, part(np.ones(400), each + 5, each), rng)
    assert found["ce"] == pytest.approx(each.std() / 20, rel=0.2)
    assert found["loss_recovered"] == 0


def test_one_window_says_nothing_of_luck():
    """A window without predictions counts for none; beside two others it changes nothing."""
    for tokens in ([3.0], [3.0, 0.0]):
        one = part(tokens, [6.0, 0.0][: len(tokens)], [1.0, 0.0][: len(tokens)])
        assert errors(one, one, one, np.random.default_rng(0)) == dict.fromkeys(
            ("ce", "kl", "loss_recovered", "kl_recovered")
        )
    two = part([3, 3, 0, 0, 0], [6, 9, 0, 0, 0], [1, 2, 0, 0, 0])
    assert errors(two, two, two, np.random.default_rng(0))["ce"] == pytest.approx(0.5 / 2**0.5, rel=0.2)


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
