"""The dense step, and the choice between the two fast ones: both do what the readable step does."""

from dataclasses import replace

import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, TopK
from unbraid.dictionaries.lists import Inputs, serve, too_dense
from unbraid.dictionaries.mechanisms import Mechanism, Sparsity
from unbraid.dictionaries.training import fast_step as choice
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.dense_step import dense_step
from unbraid.dictionaries.training.fast_step import fast_step
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import NotFinite, PluginFault
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=32, n_features=48, active=3.0)


class Lean(Mechanism):
    """A penalty on the weights themselves, with a memory of its own."""

    def start(self, stack):
        return {"steps": torch.zeros(stack.members)}

    def penalty(self, forward, memory, stack, signals):
        return 0.01 * (stack.encoder * stack.decoder).sum((1, 2))

    def observe(self, forward, memory, stack, signals):
        return {"steps": memory["steps"] + forward.codes.l0().float().mean(-1)}


MECHANISMS = {"sparsity": stack_configs([Sparsity(weight=weight) for weight in (0.1, 0.2, 0.3)]), "lean": Lean()}


def start(biases, mechanisms, pre_bias=False, activation=None):
    kind = {} if activation is None else {"activation": activation}
    state = State.start(Dictionary(d_sae=64, pre_bias=pre_bias, **kind), 32, mechanisms, [0, 1, 2])
    state.stack.encoder_bias.copy_(torch.tensor(biases)[:, None].expand(3, 64))
    return state


def training(**changes):
    return stack_configs([Training(batch=96, learning_rate=rate, **changes) for rate in (1e-3, 1e-2, 3e-3)])


def inputs(position, planted=False):
    batch = WORLD.batch(position, 96 if not planted else 256)
    return Inputs(batch.x, batch.truth, WORLD.directions) if planted else Inputs(batch.x)


def compare(ours, take, settings, mechanisms, biases, pre_bias, planted=False, steps=4):
    reference = start(biases, mechanisms, pre_bias)
    for position in range(steps):
        given = inputs(position, planted)
        found, expected = take(ours, given, settings, mechanisms), step(reference, given.x, settings, mechanisms)
        assert found.terms.keys() == expected.terms.keys()
        for name, cost in expected.terms.items():
            torch.testing.assert_close(found.terms[name], cost, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.l0, expected.l0)
    for name, tensor in reference.tensors().items():
        torch.testing.assert_close(ours.tensors()[name], tensor, rtol=1e-4, atol=1e-5)
    assert ours.step == steps


@pytest.mark.parametrize("mechanisms", [{}, MECHANISMS], ids=["plain", "penalties"])
@pytest.mark.parametrize("loss", ["sum_square", "mean_square", "norm"])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("pre_bias", [False, True])
@pytest.mark.parametrize("planted", [False, True], ids=["plain", "planted"])
def test_the_dense_step_does_what_the_readable_one_does(planted, pre_bias, clip, loss, mechanisms):
    biases = [0.3, 0.0, -0.1]
    settings = training(clip=clip, reconstruction_loss=loss)
    assert (inputs(0, planted).planted is not None) == planted
    compare(start(biases, mechanisms, pre_bias), dense_step, settings, mechanisms, biases, pre_bias, planted)


@pytest.mark.parametrize("planted", [False, True], ids=["plain", "planted"])
@pytest.mark.parametrize(
    ("biases", "ways"),
    [([0.3, 0.2, 0.1], "ddd"), ([0.3, -0.5, 0.1], "dsd"), ([-0.5, -0.4, -0.5], "s")],
    ids=["all dense", "mixed", "all sparse"],
)
def test_each_member_takes_the_way_that_suits_it(biases, ways, planted, monkeypatch):
    taken = []

    def noted(letter, take):
        def wrapped(*given):
            taken.append(letter)
            return take(*given)

        return wrapped

    monkeypatch.setattr(choice, "dense_step", noted("d", choice.dense_step))
    monkeypatch.setattr(choice, "sparse_step", noted("s", choice.sparse_step))
    state = start(biases, MECHANISMS)
    assert too_dense(state.stack, inputs(0)).tolist() == [bias > -0.4 for bias in biases]
    compare(state, fast_step, training(), MECHANISMS, biases, False, planted, steps=2)
    assert "".join(taken) == 2 * ways


def test_what_is_not_finite_names_the_member_it_is_of():
    state = start([0.3, 0.3, 0.3], MECHANISMS)
    state.stack.encoder[1, 3, 2] = torch.inf
    with pytest.raises(NotFinite, match="of member 1 is not finite"):
        fast_step(state, inputs(0), training(), MECHANISMS)


def test_it_serves_only_what_it_can():
    stack = start([0.0] * 3, {}).stack
    assert serve(stack)
    assert serve(start([0.0] * 3, {}, activation=TopK(k=3)).stack)
    assert not serve(stack.with_parameters({n: p.double() for n, p in stack.parameters().items()}))


class Dampen(Mechanism):
    """Acts at `encode`: divides by what fires in the sample, as much as the stack's first bias says."""

    def encode(self, codes, memory, stack, signals):
        share = 0.2 + stack.encoder_bias[:, :1, None].square()
        return replace(codes, values=codes.values / (1 + share * codes.values.sum(-1, keepdim=True)))


class Rearrange(Mechanism):
    def encode(self, codes, memory, stack, signals):
        return Codes.dense(codes.to_dense()[..., :-1])


@pytest.mark.parametrize(
    "biases", [[0.3, 0.2, 0.1], [0.3, -0.5, 0.1], [-0.5, -0.4, -0.5]], ids=["dense", "mixed", "sparse"]
)
@pytest.mark.parametrize(("clip", "pre_bias"), [(None, False), (0.05, True)])
def test_gradients_go_back_through_encode_to_values_and_weights(biases, clip, pre_bias):
    mechanisms = {**MECHANISMS, "dampen": Dampen()}
    state = start(biases, mechanisms, pre_bias)
    compare(state, fast_step, training(clip=clip), mechanisms, biases, pre_bias)


@pytest.mark.parametrize("bias", [0.3, -0.5], ids=["dense", "sparse"])
def test_encode_may_not_change_the_slots(bias):
    mechanisms = {"rearrange": Rearrange()}
    with pytest.raises(PluginFault, match="codes in other slots"):
        fast_step(start([bias] * 3, mechanisms), inputs(0), training(), mechanisms)
