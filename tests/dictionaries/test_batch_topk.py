"""Batch top-k against a sort written out in numpy, and its threshold against the recursion by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unbraid.config import check
from unbraid.dictionaries import BatchTopK, Dictionary, Stack
from unbraid.errors import UserError


def kept_by_hand(pre, k):
    """Of each member, the k·b largest positive entries of the whole batch."""
    kept = np.zeros_like(pre)
    for member, one in enumerate(pre):
        ranked = sorted(np.ndindex(one.shape), key=lambda place: -one[place])
        for place in ranked[: k * pre.shape[1]]:
            kept[(member, *place)] = max(one[place], 0)
    return kept


@given(st.integers(1, 7), st.integers(0, 99), st.floats(-2, 2))
def test_in_training_the_largest_of_the_whole_batch_fire(k, seed, shift):
    pre = np.random.default_rng(seed).standard_normal((2, 5, 7)) + shift
    fired = BatchTopK(k=k).fire(torch.from_numpy(pre), BatchTopK(k=k).memory([0, 1]))
    assert np.array_equal(fired.codes.to_dense().numpy(), kept_by_hand(pre, k))
    np.testing.assert_allclose(fired.codes.l1().numpy(), kept_by_hand(pre, k).sum(-1))


def test_samples_share_the_budget_unevenly():
    pre = torch.tensor([[[3.0, 2.0, 1.0], [0.5, 0.1, 0.2]]])
    assert BatchTopK(k=1).fire(pre, BatchTopK(k=1).memory([0])).codes.l0().tolist() == [[2, 0]]


def test_the_threshold_follows_the_least_that_fired(rng):
    rule, by_hand = BatchTopK(k=2, momentum=0.7), [None, None]
    memory = rule.memory([0, 1])
    for _ in range(5):
        pre = rng.standard_normal((2, 4, 6))
        memory = rule.fire(torch.from_numpy(pre), memory).memory
        for member, kept in enumerate(kept_by_hand(pre, 2)):
            least, old = kept[kept > 0].min(), by_hand[member]
            by_hand[member] = least if old is None else 0.7 * old + 0.3 * least
    np.testing.assert_allclose(memory["threshold"].numpy(), by_hand)


def test_a_batch_in_which_nothing_fires_leaves_the_threshold_as_it_was():
    rule = BatchTopK(k=1)
    memory = {"threshold": torch.tensor([0.25, -1.0], dtype=torch.float64)}
    assert torch.equal(rule.fire(-torch.ones(2, 3, 4), memory).memory["threshold"], memory["threshold"])


def test_used_what_exceeds_the_threshold_fires_whatever_the_batch():
    pre = torch.tensor([[[0.5, 0.2, 0.3, -1.0]], [[0.5, 0.2, 0.0, -1.0]]])
    codes = BatchTopK(k=1).codes(pre, {"threshold": torch.tensor([0.3, -1.0], dtype=torch.float64)})
    assert torch.equal(codes.to_dense(), torch.tensor([[[0.5, 0.0, 0.0, 0.0]], [[0.5, 0.2, 0.0, 0.0]]]))


def test_more_than_the_features_is_refused():
    activation = {"kind": "batchtopk", "k": 9}
    with pytest.raises(UserError, match=r"activation\.k is 9, more than the dictionary's 8 features"):
        check(Dictionary, {"d_sae": 8, "activation": activation}, "here")


def test_a_member_taken_out_keeps_its_threshold():
    stack = Stack.start(Dictionary(d_sae=4, activation=BatchTopK(k=1)), 3, [0, 1])
    stack.remember({"threshold": torch.tensor([0.1, 0.2])})
    assert stack.member(1).memory["threshold"].tolist() == pytest.approx([0.2])
