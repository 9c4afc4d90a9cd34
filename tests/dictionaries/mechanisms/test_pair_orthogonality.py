"""Features a = (2, 1), b = (1, 0), c = (0, 3) over two samples: a·b = 2, a·c = 3, b and c never fire together."""

import pytest
import torch

from tests.dictionaries.mechanisms.hand_made import a_pass, a_stack
from unbraid.config import check
from unbraid.dictionaries.mechanisms import PairOrthogonality, Signals
from unbraid.errors import UserError
from unbraid.members import stack_configs

CODES = [[2, 1, 0], [1, 0, 3]]
AB, AC = 2 / 5**0.5, 1 / 5**0.5


def cost(mechanism, signals=None, codes=CODES, stack=None):
    return mechanism.penalty(a_pass(codes), {}, stack or a_stack(3), signals or Signals()).tolist()


def test_corrected_is_tau_times_the_mean_of_cosines():
    assert cost(PairOrthogonality(weight=3.0, share=0.4)) == pytest.approx([3 * 0.1 * AB])
    assert cost(PairOrthogonality(share=0.7, tau=2.0)) == pytest.approx([2 * (AB + AC) / 2])
    assert cost(PairOrthogonality(share=1.0)) == pytest.approx([0.1 * (AB + AC) / 3])


def test_a_threshold_leaves_out_what_is_below_it():
    assert cost(PairOrthogonality(share=1.0, tau=1.0, threshold=0.1)) == pytest.approx([(AB - 0.1 + AC - 0.1) / 3])
    assert cost(PairOrthogonality(share=1.0, tau=2.0, threshold=0.5)) == pytest.approx([2 * (AB - 0.5) / 3])
    form = PairOrthogonality(share=0.7, tau=1.0, threshold=2.5, form="published")
    assert cost(form) == pytest.approx([3 - 2.5])


def test_published_is_tau_times_the_mean_of_the_largest_sums_each_there_twice():
    assert cost(PairOrthogonality(share=1.0, form="published")) == pytest.approx([0.1 * (3 + 3 + 2) / 3])
    assert cost(PairOrthogonality(share=0.7, form="published", weight=2.0)) == pytest.approx([2 * 0.1 * 3])


def test_published_and_corrected_differ_in_what_a_louder_feature_does():
    louder = [[2, 1, 0], [1, 0, 30]]
    assert cost(PairOrthogonality(share=1.0), codes=louder) == pytest.approx(cost(PairOrthogonality(share=1.0)))
    assert cost(PairOrthogonality(share=0.7, form="published"), codes=louder) == pytest.approx([0.1 * 30])


def test_decoder_cosine_looks_at_the_rows_of_the_pairs_with_the_largest_sums():
    stack = a_stack(3)
    between = float(abs(stack.decoder[0, 0] @ stack.decoder[0, 2]))
    form = PairOrthogonality(share=0.4, tau=0.2, weight=5.0, form="decoder_cosine")
    assert cost(form, stack=stack) == pytest.approx([5 * 0.2 * between])


def test_each_member_has_its_own_settings_and_signals():
    mechanism = stack_configs(
        [PairOrthogonality(weight=weight, share=share) for weight, share in ((1.0, 1.0), (2.0, 0.4))]
    )
    forward, stack = a_pass([CODES, CODES]), a_stack(3, members=2)
    found = mechanism.penalty(forward, {}, stack, Signals()).tolist()
    assert found == pytest.approx([0.1 * (AB + AC) / 3, 2 * 0.1 * AB])
    signals = Signals(tau=torch.tensor([0.5, 0.25]), pairs=torch.tensor([0, 2]))
    found = mechanism.penalty(forward, {}, stack, signals).tolist()
    assert found == pytest.approx([0.5 * (AB + AC) / 3, 2 * 0.25 * (AB + AC) / 2])


def test_nothing_that_fires_together_costs_nothing():
    for form in ("corrected", "published", "decoder_cosine"):
        assert cost(PairOrthogonality(form=form), codes=[[1, 0, 0], [0, 2, 0]]) == [0]
    assert PairOrthogonality().penalty(a_pass([[1.0]]), {}, a_stack(1), Signals()).tolist() == [0]


def test_its_gradient_pushes_a_pair_apart():
    values = torch.tensor([CODES], dtype=torch.float64)
    forward = a_pass(values.requires_grad_())
    cost = PairOrthogonality(share=0.4, tau=1.0).penalty(forward, {}, a_stack(3), Signals())
    (gradient,) = torch.autograd.grad(cost.sum(), values)
    # ∂cos/∂a = b / (|a||b|) - cos · a / |a|²
    assert gradient[0, :, 0].tolist() == pytest.approx([1 / 5**0.5 - AB * 2 / 5, -AB / 5])
    assert gradient[0, 0, 1] == pytest.approx(AB - AB)
    assert not gradient[..., 2].any()


@pytest.mark.parametrize(
    "settings", [{"share": 0.0}, {"share": 1.5}, {"weight": -1.0}, {"threshold": -0.1}, {"form": "raw"}]
)
def test_what_makes_no_sense_is_refused(settings):
    with pytest.raises(UserError, match=next(iter(settings))):
        check(PairOrthogonality, settings, "here")
