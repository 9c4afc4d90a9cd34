"""How wide a head must be, from the pairs of a text: chains whose correlations are known, and attention by hand."""

import math

import numpy as np
import pytest
import torch

from unbraid.metrics.text_beliefs import first_above, pair_beliefs, text_sharpness


def chain(rng, transitions, length=400_000):
    """A text of a Markov chain; row v says how likely each token is after v."""
    draws, tokens = rng.random(length), np.zeros(length, dtype=np.int64)
    edges = np.cumsum(transitions, 1)
    for step in range(1, length):
        tokens[step] = np.searchsorted(edges[tokens[step - 1]], draws[step])
    return tokens


def test_of_two_tokens_that_repeat_the_correlation_is_known(rng):
    """Each stays with probability .8: half of the time each, correlation .6, so that μ = ±√.6."""
    means = pair_beliefs(chain(rng, np.array([[0.8, 0.2], [0.2, 0.8]])), 2)
    assert means.shape == (2, 1)
    assert means[:, 0].abs().tolist() == pytest.approx([math.sqrt(0.6)] * 2, rel=0.01)
    assert means[0, 0].sign() == -means[1, 0].sign()


def test_the_variance_of_each_dimension_is_the_correlation_of_a_token_with_the_next(rng):
    """Of a reversible chain: its eigenvalues but the first, by size; here -.6, .4 and 0, by a symmetric matrix."""
    basis = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    transitions = basis.T @ np.diag([1, -0.6, 0.4, 0]) @ basis
    tokens = chain(rng, transitions)
    means = pair_beliefs(tokens, 4).numpy()
    variances = (np.bincount(tokens) / len(tokens)) @ means**2
    assert variances == pytest.approx([0.6, 0.4, 0], abs=0.01)


def test_means_and_the_weights_that_read_them_predict_the_pairs_and_share_alike():
    """The best W for these μ gives all of δ = p(w | v)/p(w) - 1, and is as large as they are in every dimension."""
    rng = np.random.default_rng(1)
    tokens = chain(rng, rng.dirichlet(np.ones(3), 3), 60_000)
    joint = np.zeros((3, 3))
    np.add.at(joint, (tokens[:-1], tokens[1:]), 1 / (len(tokens) - 1))
    before, after = joint.sum(1), joint.sum(0)
    delta = joint / np.outer(before, after) - 1
    means = pair_beliefs(tokens, 3).numpy()
    weights = np.linalg.lstsq(np.sqrt(before)[:, None] * means, np.sqrt(before)[:, None] * delta)[0].T
    np.testing.assert_allclose(means @ weights.T, delta, atol=1e-2)
    np.testing.assert_allclose(before @ means**2, after @ weights**2, rtol=1e-2)


def test_a_text_without_pairs_puts_all_tokens_in_one_place(rng):
    means = pair_beliefs(rng.integers(1, 6, 300_000), 7)  # 0 and 6 never occur
    assert means.shape == (7, 6)
    assert means.abs().max() < 0.15
    assert (means[[0, 6]] == 0).all()


def test_a_token_seen_once_says_little(rng):
    """Witten and Bell: of a token after which two different ones came once each, half is believed."""
    often = np.tile([0, 1], 5000)
    tokens = np.concatenate([often, [2, 2], often])  # 2 is followed by itself once and by 0 once
    means = pair_beliefs(tokens, 3)
    counts = np.array([[0, 10_000, 0], [9998, 0, 1], [1, 0, 1]], dtype=float)
    shared = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
    table = (counts - shared) / np.sqrt(np.outer(counts.sum(1), counts.sum(0)))
    shrunk = table * (counts.sum(1) / (counts.sum(1) + (counts > 0).sum(1)))[:, None]
    left, sizes, _ = np.linalg.svd(shrunk)
    expected = left[:, :2] * np.sqrt(sizes[:2]) / np.sqrt(counts.sum(1) / counts.sum())[:, None]
    np.testing.assert_allclose(means.abs(), abs(expected), rtol=1e-3, atol=1e-3)
    assert shrunk[2, 2] == pytest.approx(table[2, 2] / 2)


def by_hand(tokens, means, kappa, own):
    """Sharpness of one window, by loops."""
    found = []
    for t in range(len(tokens)):
        keys = [s for s in range(t + 1) if own or s < t]
        if len(keys) < 2:
            continue
        kl = [sum((means[tokens[t]] - means[tokens[s]]) ** 2) / 2 for s in keys]
        weights = np.exp(-np.array(kl) / kappa)
        weights /= weights.sum()
        effective = math.exp(-sum(w * math.log(w) for w in weights if w > 0))
        found.append(1 - (effective - 1) / (len(keys) - 1))
    return np.mean(found)


@pytest.mark.parametrize("rule", ["shared", "head"])
@pytest.mark.parametrize("own", [True, False])
def test_sharpness_on_a_window_is_what_loops_find(rng, own, rule):
    means, tokens = rng.normal(size=(5, 3)), rng.integers(0, 5, 9)
    found = text_sharpness(torch.from_numpy(means), torch.from_numpy(tokens)[None], 0.7, rule, self_masked=not own)
    for width in (1, 2, 3):
        kappa = 0.7 * (math.sqrt(width) if rule == "head" else 1)
        assert found[width - 1].item() == pytest.approx(by_hand(tokens, means[:, :width], kappa, own))


def test_the_smallest_head_of_a_hand_made_text():
    """Four tokens at the corners of a square: a line sees two of them as one, a plane tells all apart."""
    corners = torch.tensor([[0.0, 0.0], [0.0, 20.0], [20.0, 0.0], [20.0, 20.0]])
    window = torch.tensor([[0, 1, 2, 3]])
    found = text_sharpness(corners, window, kappa=1.0)
    # one dimension: rows of 2, 3 and 4 keys have 2, 1 and 2 effective ones
    assert found.tolist() == pytest.approx([(0 + 1 + 2 / 3) / 3, 1.0])
    assert [first_above(found, threshold) for threshold in (0.5, 0.6, 1.0)] == [1, 2, None]


def test_tokens_that_come_again_are_alike_to_every_head():
    """No width is sharper than repeats allow: of two equal keys two are effective."""
    apart = 100 * torch.eye(3)
    assert text_sharpness(apart, torch.tensor([[1, 1]]), kappa=1.0).tolist() == [0, 0, 0]
    assert text_sharpness(apart, torch.tensor([[1, 2, 1]]), kappa=1.0)[-1].item() == pytest.approx((1 + 0.5) / 2)
