"""The sparsity costs by hand, their annealing, and the one knob that sets how many features fire."""

import math

import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Gated, JumpRelu, Relu
from unbraid.dictionaries.mechanisms import Forward, PAnnealing, Signals, Sparsity
from unbraid.dictionaries.stack import Stack, Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import UserError
from unbraid.schedule import Moment
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=24, n_features=48, active=3.0)
STACK = Stack.start(Dictionary(d_sae=3), 4, [0, 1], target=Target(sites=(1, 3)))
VALUES = torch.tensor([[[2.0, 0.0, 0.5], [0.0, 1.0, 0.0]]]).expand(2, -1, -1)
FORWARD = Forward(torch.zeros(2, 4), Codes.dense(VALUES), torch.zeros(2, 2, 4))
SLOTS = Codes(
    torch.tensor([[[0, 2], [1, 0]]]).expand(2, -1, -1), torch.tensor([[[2.0, 0.5], [1, 0]]]).expand(2, -1, -1), 3
)


@pytest.mark.parametrize(
    "forward", [FORWARD, Forward(FORWARD.x, SLOTS, FORWARD.reconstruction)], ids=["dense", "lists"]
)
def test_costs_by_hand(forward):
    """Two samples: codes 2 and ½ in the first, 1 in the second."""
    cost = Sparsity(weight=0.5, cost="tanh", sharpness=3.0).penalty(forward, {}, STACK, Signals())
    by_hand = 0.5 * (math.tanh(6) + math.tanh(1.5) + math.tanh(3)) / 2
    assert cost.tolist() == pytest.approx([by_hand] * 2)
    signals = Signals(power=torch.tensor([0.5, 1.0]), power_scale=torch.tensor([1.0, 3.0]))
    annealed = Sparsity(weight=1.0).penalty(forward, {}, STACK, signals)
    assert annealed.tolist() == pytest.approx([(2**0.5 + 0.5**0.5 + 1) / 2, 3 * 3.5 / 2])
    norms = STACK.decoder[..., :1].norm(dim=-1) + STACK.decoder[..., 1:].norm(dim=-1)
    weighed = Sparsity(weight=1.0, weigh_by="decoder_norm").penalty(forward, {}, STACK, Signals())
    torch.testing.assert_close(weighed, (2 * norms[:, 0] + 0.5 * norms[:, 2] + norms[:, 1]) / 2)


def test_a_unit_rows_cost_has_no_gradient_along_the_row():
    stack = STACK.requires_grad_copy()
    cost = Sparsity(weight=1.0, weigh_by="decoder_norm").penalty(FORWARD, {}, stack, Signals()).sum()
    (gradient,) = torch.autograd.grad(cost, stack.decoder)
    assert gradient.abs().max() > 0.01
    assert (gradient * stack.decoder).sum(-1).abs().max() < 1e-6


def test_the_power_falls_in_a_line_and_the_cost_stays_as_it_was():
    mechanism = PAnnealing(end=0.2, begin=0.25, until=0.75)
    memory, powers = mechanism.start(STACK), []
    for done in (0.1, 0.25, 0.5, 0.75, 0.9):
        forward = Forward(FORWARD.x, FORWARD.codes, FORWARD.reconstruction, moment=Moment(done))
        before = Sparsity(weight=1.0).penalty(forward, {}, STACK, Signals(**mechanism.signal(memory, STACK)))
        memory = mechanism.observe(forward, memory, STACK, Signals())
        after = Sparsity(weight=1.0).penalty(forward, {}, STACK, Signals(**mechanism.signal(memory, STACK)))
        torch.testing.assert_close(before, after)
        powers.append(float(memory["power"][0]))
    assert powers == pytest.approx([1, 1, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(
    ("rule", "weight", "rate"),
    [(Relu(), 0.1, 1e-2), (JumpRelu(bandwidth=0.2), 0.05, 4e-2), (Gated(), 0.1, 1e-2)],
    ids=["relu", "jumprelu", "gated"],
)
def test_one_knob_sets_how_many_features_fire_whatever_the_rule_counts(rule, weight, rate):
    training = Training(steps=500, batch=128, learning_rate=rate, decay_share=0.2)
    for target in (2.0, 4.0):
        sparsity = Sparsity(weight=weight, target_l0=target)
        stack = fit(WORLD, Dictionary(d_sae=48, activation=rule), [sparsity], training, seeds=[0])
        l0 = stack.encode(WORLD.batch(0, 2000, "evaluation").x).l0().double().mean()
        assert float(l0) == pytest.approx(target, rel=0.15)


def test_without_a_target_nothing_is_remembered_and_nothing_steered():
    assert Sparsity().start(STACK) == {}
    state = State.start(Dictionary(d_sae=8), 24, {"sparsity": Sparsity(target_l0=3.0)}, [0])
    step(state, WORLD.batch(0, 32).x, Training(), {"sparsity": Sparsity(target_l0=3.0)})
    assert state.memories["sparsity"]["steps"].tolist() == [1]


@pytest.mark.parametrize("rule", [JumpRelu(), Gated()], ids=["jumprelu", "gated"])
def test_what_does_not_count_codes_refuses_costs_of_codes(rule):
    short = Training(steps=1, batch=8)
    for mechanisms, problem in (
        ([Sparsity(cost="tanh")], 'was given cost = "tanh"'),
        ([Sparsity(weigh_by="decoder_norm")], 'was given weigh_by = "decoder_norm"'),
        ([Sparsity(), PAnnealing()], "p_annealing anneals"),
    ):
        with pytest.raises(UserError, match=problem):
            fit(WORLD, Dictionary(d_sae=8, activation=rule), mechanisms, short, seeds=[0])
    with pytest.raises(UserError, match="p_annealing writes 'power', which nothing enabled reads"):
        fit(WORLD, Dictionary(d_sae=8), [PAnnealing()], short, seeds=[0])
