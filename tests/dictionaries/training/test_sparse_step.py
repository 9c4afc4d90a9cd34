"""The fast step is the readable one: same costs, same weights, same moments, and the same refusals."""

import copy

import pytest
import torch

from unbraid.dictionaries import Dictionary, Relu, TopK
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Mechanism, Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.dense_step import dense_step
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.sparse_step import sparse_step
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import NotFinite
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=32, n_features=48, active=3.0)
SPARSITY = {"sparsity": stack_configs([Sparsity(weight=weight) for weight in (0.1, 0.2, 0.3)])}


class Lean(Mechanism):
    """A penalty on the weights themselves, which lists know nothing of."""

    def penalty(self, forward, memory, stack, signals):
        return 0.01 * (stack.encoder * stack.decoder).sum((1, 2))


def start(activation=None, pre_bias=False, mechanisms=SPARSITY):
    dictionary = Dictionary(d_sae=256, activation=activation or Relu(), pre_bias=pre_bias)
    state = State.start(dictionary, 32, mechanisms, [0, 1, 2])
    state.stack.encoder_bias.fill_(-0.4)
    return state


def training(**changes):
    return stack_configs([Training(batch=256, learning_rate=rate, **changes) for rate in (1e-3, 1e-2, 3e-3)])


def inputs(position, planted):
    batch = WORLD.batch(position, 256)
    return Inputs(batch.x, batch.truth, WORLD.directions) if planted else Inputs(batch.x)


def compare(fast, slow, settings, mechanisms, planted=False, steps=5):
    for position in range(steps):
        given = inputs(position, planted)
        ours, theirs = sparse_step(fast, given, settings, mechanisms), step(slow, given.x, settings, mechanisms)
        assert ours is not None
        assert ours.terms.keys() == theirs.terms.keys()
        for name, cost in theirs.terms.items():
            torch.testing.assert_close(ours.terms[name], cost, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(ours.l0, theirs.l0)
    for name, tensor in slow.tensors().items():
        torch.testing.assert_close(fast.tensors()[name], tensor, rtol=1e-4, atol=1e-5)
    assert fast.step == slow.step == steps


@pytest.mark.parametrize("planted", [False, True], ids=["plain", "planted"])
@pytest.mark.parametrize("loss", ["sum_square", "mean_square", "norm"])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("pre_bias", [False, True])
@pytest.mark.parametrize("activation", [Relu(), TopK(k=5)], ids=str)
def test_it_does_what_the_readable_step_does(activation, pre_bias, clip, loss, planted):
    settings = training(clip=clip, reconstruction_loss=loss)
    compare(start(activation, pre_bias), start(activation, pre_bias), settings, SPARSITY, planted)


def test_the_length_of_no_error_has_no_gradient():
    """An empty sample is reconstructed exactly: its error's length, 0, has no slope, in every step alike."""
    settings, states = training(reconstruction_loss="norm"), [start() for _ in range(3)]
    x = WORLD.batch(0, 256).x.clone()
    x[:9] = 0
    for state, take in zip(states, (sparse_step, dense_step, None), strict=True):
        if take is None:
            step(state, x, settings, SPARSITY)
        else:
            take(state, Inputs(x), settings, SPARSITY)
    for state in states[:2]:
        for name, tensor in states[2].tensors().items():
            torch.testing.assert_close(state.tensors()[name], tensor, rtol=1e-4, atol=1e-5)


def test_it_does_so_without_mechanisms_and_with_penalties_on_weights():
    compare(start(mechanisms={}), start(mechanisms={}), training(), {})
    leaning = {**SPARSITY, "lean": Lean()}
    compare(start(mechanisms=leaning), start(mechanisms=leaning), training(), leaning)


def test_a_feature_of_any_age_is_corrected_by_its_own_age():
    fast, slow = start(), start()
    for state in (fast, slow):
        state.adam.age["encoder"][1, :9] = 40
        for name in ("encoder_bias", "decoder"):
            state.adam.age[name].copy_(state.adam.age["encoder"])
    compare(fast, slow, training(), SPARSITY)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stops_before_anything_changed(bad):
    state, untouched, given = start(), start(), inputs(0, False)
    x = given.x.clone()
    x[3, 2] = bad
    with pytest.raises(NotFinite):
        advance(state, Inputs(x), training(), SPARSITY)
    assert all(torch.equal(tensor, untouched.tensors()[name]) for name, tensor in state.tensors().items())


def test_the_number_of_threads_does_not_change_a_bit():
    ends, before = [], torch.get_num_threads()
    for threads in (2, 1):  # kernels use as many as torch does
        torch.set_num_threads(threads)
        state = start()
        for position in range(3):
            assert sparse_step(state, inputs(position, True), training(), SPARSITY) is not None
        ends.append(copy.deepcopy(state.tensors()))
    torch.set_num_threads(before)
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
