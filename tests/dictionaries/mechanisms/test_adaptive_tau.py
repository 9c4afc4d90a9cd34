"""The top pair of these codes has the sum 4 and the cosine 4/5, in one sample of two."""

import pytest
import torch

from tests.dictionaries.mechanisms.hand_made import a_pass, a_stack
from unbraid.config import check
from unbraid.dictionaries.mechanisms import AdaptiveTau, Signals
from unbraid.errors import UserError
from unbraid.members import stack_configs

CODES = [[2, 2, 0], [1, 0, 0], [0, 1, 0]]


def taus(mechanism, steps, signals=None, codes=CODES):
    stack = a_stack(3, members=len(codes) if torch.tensor(codes).ndim == 3 else 1)
    memory, seen = mechanism.start(stack), []
    for _ in range(steps):
        memory = mechanism.observe(a_pass(codes), memory, stack, signals or Signals())
        seen.append(mechanism.signal(memory, stack)["tau"].tolist())
    return seen


def test_corrected_lowers_the_hinge_while_the_top_is_above_the_target():
    found = taus(AdaptiveTau(share=0.4), 2)
    factor = 0.9 + 0.1 * 0.1 / 0.8
    assert found[0] == pytest.approx([0.1 * factor])
    assert found[1] == pytest.approx([0.1 * factor**2])
    assert taus(AdaptiveTau(share=0.4, target=0.9), 1)[0] == pytest.approx([0.1 * (0.9 + 0.1 * 0.9 / 0.8)])


def test_published_raises_the_weight_and_pins_it_at_its_bound():
    assert taus(AdaptiveTau(share=0.4, target=3.0, form="published"), 1)[0] == pytest.approx(
        [0.1 * (0.9 + 0.1 * 4 / 3)]
    )
    found = taus(AdaptiveTau(share=0.4, form="published"), 3)
    assert found == [pytest.approx([0.1 * (0.9 + 0.1 * 40)]), [0.5], [0.5]]


def test_it_stays_within_its_bounds():
    assert taus(AdaptiveTau(share=0.4, momentum=0.0), 3)[-1] == pytest.approx([0.01])
    assert taus(AdaptiveTau(share=0.4), 1, codes=[[1, 0, 0], [0, 1, 0]])[-1] == pytest.approx([0.5])


def test_it_looks_at_as_many_pairs_as_are_selected():
    """Of three pairs the other two are 0, so that the mean of all is a third."""
    for mechanism, signals in (
        (AdaptiveTau(share=1.0), None),
        (AdaptiveTau(share=0.4), Signals(pairs=torch.tensor([3]))),
    ):
        assert taus(mechanism, 1, signals)[0] == pytest.approx([0.1 * (0.9 + 0.1 * 0.1 / (0.8 / 3))])


def test_each_member_follows_its_own_target():
    found = taus(
        stack_configs([AdaptiveTau(share=0.4, target=target) for target in (0.1, 0.9)]), 1, codes=[CODES, CODES]
    )
    assert found[0] == pytest.approx([0.1 * (0.9 + 0.1 / 8), 0.1 * (0.9 + 0.1 * 9 / 8)])


def test_it_must_begin_within_its_bounds():
    with pytest.raises(UserError, match=r"initial is 0.7; accepted: 0.01 to 0.5"):
        check(AdaptiveTau, {"initial": 0.7}, "here")
