import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.mechanisms import AdaptiveL1, Forward, Signals, Sparsity
from unbraid.dictionaries.mechanisms.mechanism import check_signals
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.errors import UserError
from unbraid.worlds import Superposition

STACK = Stack.start(Dictionary(d_sae=4), 3, [0])


def after(mechanism, shares):
    """The factor after batches in which these shares of the four features fire."""
    memory = mechanism.start(STACK)
    for share in shares:
        values = (torch.arange(4) < 4 * share).float().expand(1, 5, 4)
        forward = Forward(torch.zeros(5, 3), Codes.dense(values), torch.zeros(1, 5, 3))
        memory = mechanism.observe(forward, memory, STACK, Signals())
    return float(mechanism.signal(memory, STACK)["l1"])


def test_the_weight_follows_the_share_that_fires_relative_to_the_target():
    steer = AdaptiveL1(target=0.4, momentum=0.9)
    first, second = 1 + 0.1 * (0.5 / 0.4 - 1), (0.09 * 0.5 + 0.1 * 0.25) / 0.19
    assert after(steer, [0.5]) == pytest.approx(first, rel=1e-6)
    assert after(steer, [0.5, 0.25]) == pytest.approx(first * (1 + 0.1 * (second / 0.4 - 1)), rel=1e-6)


def test_an_error_of_more_than_the_target_counts_as_the_target():
    assert after(AdaptiveL1(target=0.1), [1.0]) == pytest.approx(1.1)
    assert after(AdaptiveL1(target=0.1), [0.0]) == pytest.approx(0.9)


def test_as_published_the_share_of_zeros_is_compared_and_its_mean_starts_at_none():
    steer = AdaptiveL1(target=0.1, momentum=0.9, form="published")
    first = 1 + 0.1 * (0.1 * 0.75 - 0.1)
    assert after(steer, [0.25]) == pytest.approx(first, rel=1e-6)
    assert after(steer, [0.25, 0.5]) == pytest.approx(first * (1 + 0.1 * (0.09 * 0.75 + 0.1 * 0.5 - 0.1)), rel=1e-6)


@pytest.mark.parametrize(("form", "end"), [("corrected", 0.25), ("published", 5.0)])
def test_codes_sparser_than_the_target_lower_the_weight_and_as_published_raise_it(form, end):
    assert after(AdaptiveL1(target=0.5, form=form), [0.25] * 500) == end


def test_it_needs_a_sparsity_cost_to_steer():
    check_signals({"sparsity": Sparsity(), "adaptive_l1": AdaptiveL1()})
    with pytest.raises(UserError, match="adaptive_l1 writes 'l1', which nothing enabled reads"):
        check_signals({"adaptive_l1": AdaptiveL1()})


def test_the_share_that_fires_ends_nearer_the_target():
    world = Superposition(dimensions=8, n_features=12, active=2.0)
    training, shares = Training(steps=120, batch=32, learning_rate=0.02), []
    for mechanisms in ([], [AdaptiveL1(target=0.1, momentum=0.9, highest=50.0)]):
        stack = fit(world, Dictionary(d_sae=24), [Sparsity(weight=0.02), *mechanisms], training, seeds=[0, 1])
        l0 = stack.encode(world.batch(0, 512, split="evaluation").x).l0()
        shares.append(l0.float().mean(-1) / 24)
    assert ((shares[1] - 0.1).abs() < 0.3 * (shares[0] - 0.1).abs()).all()
