"""The top pair of these codes has the sum 4 and the cosine 4/5, in one sample of two."""

import pytest
import torch

from tests.dictionaries.mechanisms.hand_made import a_pass, a_stack
from unbraid.config import check
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.mechanisms import AdaptiveTau, PairOrthogonality, Signals, Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance, inputs_of
from unbraid.dictionaries.training.step import State
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

CODES = [[2, 2, 0], [1, 0, 0], [0, 1, 0]]


def taus(mechanism, steps, signals=None, codes=CODES):
    stack = a_stack(3, members=len(codes) if torch.tensor(codes).ndim == 3 else 1)
    memory, seen = mechanism.start(stack), []
    for _ in range(steps):
        memory = mechanism.observe(a_pass(codes), memory, stack, signals or Signals())
        seen.append(mechanism.signal(memory, stack)["tau"].tolist())
    return seen


def test_corrected_raises_the_strength_above_the_target_and_lowers_it_below():
    """By .9 + .1 · mean / target a step: momentum .9 towards τ · mean / target."""
    for target in (0.2, 1.0):
        factor = 0.9 + 0.1 * 0.8 / target
        found = taus(AdaptiveTau(share=0.4, target=target), 3)
        assert found == [pytest.approx([0.1 * factor**step]) for step in (1, 2, 3)]
        assert (found[-1][0] > 0.1) == (target < 0.8)
    assert taus(AdaptiveTau(share=0.4, target=0.8), 3) == [pytest.approx([0.1])] * 3


def test_momentum_0_follows_the_last_batch_alone_and_1_never_moves():
    assert taus(AdaptiveTau(share=0.4, target=0.4, momentum=0.0), 1)[0] == pytest.approx([0.2])
    assert taus(AdaptiveTau(share=0.4, target=0.4, momentum=1.0), 3)[-1] == pytest.approx([0.1])


def test_the_log_has_tau_and_the_mean_of_the_pairs_it_saw():
    mechanism, stack = AdaptiveTau(share=0.4, target=0.2), a_stack(3)
    memory = mechanism.observe(a_pass(CODES), mechanism.start(stack), stack, Signals())
    assert {name: value.tolist() for name, value in mechanism.logged(memory).items()} == {
        "tau": pytest.approx([0.13]),
        "mean": pytest.approx([0.8]),
    }


def test_published_raises_the_weight_and_pins_it_at_its_bound():
    assert taus(AdaptiveTau(share=0.4, target=3.0, form="published"), 1)[0] == pytest.approx(
        [0.1 * (0.9 + 0.1 * 4 / 3)]
    )
    found = taus(AdaptiveTau(share=0.4, form="published"), 3)
    assert found == [pytest.approx([0.1 * (0.9 + 0.1 * 40)]), [0.5], [0.5]]


def test_it_stays_within_its_bounds():
    assert taus(AdaptiveTau(share=0.4), 9)[-1] == pytest.approx([0.5])
    assert taus(AdaptiveTau(share=0.4), 30, codes=[[1, 0, 0], [0, 1, 0]])[-1] == pytest.approx([0.01])


def test_it_looks_at_as_many_pairs_as_are_selected():
    """Of three pairs the other two are 0, so that the mean of all is a third."""
    for mechanism, signals in (
        (AdaptiveTau(share=1.0), None),
        (AdaptiveTau(share=0.4), Signals(pairs=torch.tensor([3]))),
    ):
        assert taus(mechanism, 1, signals)[0] == pytest.approx([0.1 * (0.9 + 0.1 * (0.8 / 3) / 0.1)])


def test_each_member_follows_its_own_target():
    found = taus(
        stack_configs([AdaptiveTau(share=0.4, target=target) for target in (0.1, 0.9)]), 1, codes=[CODES, CODES]
    )
    assert found[0] == pytest.approx([0.1 * (0.9 + 0.1 * 8), 0.1 * (0.9 + 0.1 * 8 / 9)])


def test_it_must_begin_within_its_bounds():
    with pytest.raises(UserError, match=r"initial is 0.7; accepted: 0.01 to 0.5"):
        check(AdaptiveTau, {"initial": 0.7}, "here")


def trained(mechanisms, steps=180):
    """Two seeds on a small planted world; gives the last state and each step's memory of τ."""
    world = Superposition(dimensions=24, n_features=32, active=3.0)
    training = Training(steps=steps, batch=256, learning_rate=1e-2)
    named = {name: stack_configs([each] * 2) for name, each in mechanisms.items()}
    state, source, seen = State.start(Dictionary(d_sae=32), 24, named, range(2)), inputs_of(world, training), []
    while state.step < steps:
        advance(state, source(state.step), stack_configs([training] * 2), named)
        seen.append(state.memories.get("adaptive_tau", {}))
    return state, seen


def test_it_acts():
    """Where the target is out of reach below it pushes at its upper bound, above at its lower; between, inside them.

    The stronger it pushes, the lower the mean of the pairs ends; and training is not that of a fixed τ.
    """
    beside = {"sparsity": Sparsity(weight=0.1), "pair_orthogonality": PairOrthogonality(weight=5.0, share=0.02)}
    fixed, ends = trained(beside)[0].stack.decoder, {}
    for target in (0.1, 0.45, 0.9):
        state, seen = trained({**beside, "adaptive_tau": AdaptiveTau(share=0.02, target=target)})
        assert (state.stack.decoder - fixed).abs().amax((1, 2)).min() > 1e-3
        ends[target] = [torch.stack([each[name] for each in seen[-45:]]).mean(0) for name in ("tau", "mean")]
    torch.testing.assert_close(ends[0.1][0], torch.full((2,), 0.5))
    torch.testing.assert_close(ends[0.9][0], torch.full((2,), 0.01))
    assert ((ends[0.45][0] > 0.02) & (ends[0.45][0] < 0.45)).all()
    assert (ends[0.1][1] > 0.1).all()
    assert ((ends[0.45][1] - 0.45).abs() < 0.1).all()
    assert (ends[0.9][1] < 0.9).all()
    assert (ends[0.9][1] - ends[0.1][1] > 0.05).all()
