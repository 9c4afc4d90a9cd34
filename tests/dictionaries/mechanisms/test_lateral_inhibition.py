import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.running import run_config
from unbraid.activations.normalization import Normalization
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Relu, Stack, TopK
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.folding import fold
from unbraid.dictionaries.inhibition import inhibit, inhibit_dense
from unbraid.dictionaries.mechanisms import AdaptiveNeighbourhoods, Forward, LateralInhibition, Signals
from unbraid.dictionaries.mechanisms.lateral_inhibition import blocks, nearest_by_cosine
from unbraid.dictionaries.mechanisms.mechanism import gather_signals
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance, inputs_of
from unbraid.dictionaries.training.step import State, run_forward
from unbraid.members import stack_configs
from unbraid.pipeline.trained import load_stack
from unbraid.worlds import Superposition

STACK = Stack.start(Dictionary(d_sae=11), 5, [0, 1])


def fires(rng, members=2, samples=6, features=11, density=0.6):
    values = rng.random((members, samples, features)) * (rng.random((members, samples, features)) < density)
    return values.astype(np.float32)


def as_lists(values, slots=None):
    """The same codes as slots in a random order, with some slots to spare."""
    features = np.argsort(values == 0, axis=-1, kind="stable")[..., : slots or values.shape[-1]]
    kept = np.take_along_axis(values, features, -1)
    return Codes(torch.from_numpy(np.where(kept > 0, features, 0)).int(), torch.from_numpy(kept), values.shape[-1])


def some_lists(rng, members=2, features=11, places=4):
    return torch.from_numpy(rng.integers(-1, features, (members, features, places))).int()


def test_the_weaker_of_neighbours_is_weakened_or_silenced():
    values = torch.tensor([[[1.0, 0.45, 0.6, 0.2, 0.1]]])
    everyone = torch.tensor([[[1, 2, 3], [0, 2, -1], [0, 1, 3], [0, 2, -1], [-1, -1, -1]]])
    found = inhibit(Codes.dense(values), everyone, 0.3, 0.5)
    torch.testing.assert_close(found, torch.tensor([[[1.0, 0.15, 0.6, 0.0, 0.1]]]))


def test_every_inhibitor_is_taken_as_it_was_so_order_does_not_matter():
    values = torch.tensor([[[1.0, 0.4, 0.15]]])
    chain = torch.tensor([[[-1], [0], [1]]])
    torch.testing.assert_close(inhibit(Codes.dense(values), chain, 0.3, 0.5), torch.tensor([[[1.0, 0.1, 0.03]]]))


def in_torch(values, lists, strength, threshold):
    return inhibit_dense(values, lists, torch.tensor(strength), torch.tensor(threshold))


@given(st.integers(0, 10_000))
def test_the_loop_is_the_specification_in_value_and_gradient(seed):
    rng = np.random.default_rng(seed)
    values, lists = fires(rng), some_lists(rng)
    strength, threshold = [0.3, 0.8], [0.5, 0.9]
    expected_leaf = torch.from_numpy(values).requires_grad_()
    expected, weights = in_torch(expected_leaf, lists, strength, threshold), torch.from_numpy(fires(rng, density=1.0))
    (expected * weights).sum().backward()
    sparse = as_lists(values)
    for codes in (Codes.dense(torch.from_numpy(values)), sparse):
        leaf = codes.values.clone().requires_grad_()
        given_codes = Codes(codes.features, leaf, codes.width)
        found = Codes(codes.features, inhibit(given_codes, lists, torch.tensor(strength), torch.tensor(threshold)), 11)
        torch.testing.assert_close(found.to_dense(), expected, rtol=0, atol=1e-6)
        (found.to_dense() * weights).sum().backward()
        gradient = Codes(codes.features, leaf.grad * (leaf.detach() > 0), 11).to_dense()
        torch.testing.assert_close(gradient, expected_leaf.grad * (expected_leaf > 0), rtol=0, atol=1e-6)


def test_gradients_are_those_of_finite_differences(rng):
    values = torch.from_numpy(fires(rng, density=1.0)).double().requires_grad_()
    lists = some_lists(rng)
    features = torch.arange(11).expand(2, 6, 11)
    assert torch.autograd.gradcheck(lambda v: inhibit(Codes.dense(v), lists, 0.3, 0.5), [values])
    assert torch.autograd.gradcheck(lambda v: inhibit(Codes(features, v, 11), lists, 0.3, 0.5), [values])


def test_what_is_not_positive_is_left_as_it_is():
    values = torch.tensor([[[1.0, -0.2, 0.0]]])
    everyone = torch.tensor([[[1, 2], [0, 2], [0, 1]]])
    assert torch.equal(inhibit(Codes.dense(values), everyone, 0.3, 0.5), values)
    assert torch.equal(inhibit(Codes.dense(values.double()), everyone, 0.3, 0.5), values.double())


# Who inhibits whom


def seed_blocks(acts, radius, strength, threshold):
    """Run 7 of the seed, said again in numpy."""
    acts = acts.copy()
    for first in range(0, acts.shape[-1], radius):
        block = acts[..., first : first + radius]
        most = block.max(-1, keepdims=True)
        acts[..., first : first + radius] = np.maximum(block - strength * most * (block < threshold * most), 0)
    return acts


def seed_neighbourhoods(acts, neighbours, strength, threshold):
    """Run 8 of the seed: each feature overwrites what those before it did to its neighbours."""
    final = acts.copy()
    for i, listed in enumerate(neighbours):
        group = listed[listed >= 0]
        own, theirs = acts[:, [i]], acts[:, group]
        final[:, group] = np.maximum(theirs - strength * own * (theirs < threshold * own), 0)
    return final


@pytest.mark.parametrize("radius", [1, 4, 11, 32])
def test_as_published_blocks_of_consecutive_features_compete(radius, rng):
    mechanism, values = LateralInhibition(radius=radius, form="published"), fires(rng)
    signals = Signals(**mechanism.signal(mechanism.start(STACK), STACK))
    for codes in (Codes.dense(torch.from_numpy(values)), as_lists(values)):
        found = mechanism.encode(codes, STACK, signals)
        np.testing.assert_allclose(found.to_dense(), seed_blocks(values, radius, 0.3, 0.5), atol=1e-6)
    assert blocks(5, 2).tolist() == [[0, 1], [0, 1], [2, 3], [2, 3], [4, -1]]


def test_as_published_the_last_feature_to_count_one_among_its_neighbours_decides(rng):
    mechanism, values, lists = LateralInhibition(form="published"), fires(rng), some_lists(rng)
    for member in range(2):
        for feature in range(11):  # a list names each feature once, and never its owner
            row = torch.unique(lists[member, feature][lists[member, feature] != feature])
            lists[member, feature] = -1
            lists[member, feature, : len(row)] = row
    found = mechanism.encode(Codes.dense(torch.from_numpy(values)), STACK, Signals(neighbours=lists)).to_dense()
    for member in range(2):
        expected = seed_neighbourhoods(values[member], lists[member].numpy(), 0.3, 0.5)
        np.testing.assert_allclose(found[member], expected, atol=1e-6)


def test_the_nearest_are_those_with_the_largest_positive_cosines(rng):
    directions = torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal((2, 40, 6))), dim=-1)
    found = nearest_by_cosine(directions, 5)
    cosines = (directions @ directions.mT).numpy()
    for member in range(2):
        for feature in range(40):
            order = np.argsort(-np.where(np.arange(40) == feature, -2, cosines[member, feature]))[:5]
            expected = {int(j) for j in order if cosines[member, feature, j] > 0}
            assert set(found[member, feature].tolist()) - {-1} == expected


def observe(mechanism, memory, stack, signals=None):
    nothing = Forward(torch.zeros(1, 5), Codes.dense(torch.zeros(2, 1, 11)), torch.zeros(2, 1, 5))
    return mechanism.observe(nothing, memory, stack, signals or Signals())


def test_the_nearest_are_found_at_first_and_then_every_so_many_steps():
    mechanism, other = LateralInhibition(radius=3, every=2), Stack.start(Dictionary(d_sae=11), 5, [2, 3])
    memory = mechanism.start(STACK)
    assert (mechanism.signal(memory, STACK)["nearest"] == -1).all()
    first = observe(mechanism, memory, STACK)
    assert torch.equal(first["nearest"], nearest_by_cosine(STACK.decoder, 3))
    second = observe(mechanism, first, other)
    assert torch.equal(second["nearest"], first["nearest"])
    assert torch.equal(observe(mechanism, second, other)["nearest"], nearest_by_cosine(other.decoder, 3))


def test_they_are_not_looked_for_where_neighbours_are_written(rng):
    mechanism, written = LateralInhibition(radius=3), Signals(neighbours=some_lists(rng))
    memory = observe(mechanism, mechanism.start(STACK), STACK, written)
    assert (memory["nearest"] == -1).all()
    nobody = Signals(neighbours=written.neighbours[..., :0])
    assert (observe(mechanism, memory | {"steps": torch.zeros(2)}, STACK, nobody)["nearest"] != -1).any()


def test_a_feature_that_has_started_anew_inhibits_nobody():
    mechanism = LateralInhibition(radius=4)
    memory = observe(mechanism, mechanism.start(STACK), STACK)
    assert (memory["nearest"] == 7).any()
    memory["nearest"][:, 7] = mechanism.start(STACK)["nearest"][:, 7]
    nearest = mechanism.signal(memory, STACK)["nearest"]
    assert not (nearest == 7).any()
    assert torch.equal(nearest[nearest != -1], memory["nearest"][(memory["nearest"] != 7) & (memory["nearest"] != -1)])


WORLD = Superposition(dimensions=12, n_features=20, active=3.0)


def trained(mechanisms, activation=None, steps=6):
    state = State.start(Dictionary(d_sae=24, activation=activation or Relu()), 12, mechanisms, [0, 1])
    training = stack_configs([Training(steps=steps, batch=64, learning_rate=0.01)] * 2)
    source = inputs_of(WORLD, training)
    while state.step < steps:
        advance(state, source(state.step), training, mechanisms)
    return state


def with_inhibition(**settings):
    """Two members of different strength."""
    return {
        "lateral_inhibition": stack_configs(
            [LateralInhibition(radius=6, every=2, strength=s, threshold=0.9, **settings) for s in (0.3, 0.6)]
        )
    }


@pytest.mark.parametrize("activation", [Relu(), TopK(k=8)], ids=["relu", "topk"])
@pytest.mark.parametrize("form", ["corrected", "published"])
@pytest.mark.parametrize("company", [False, True], ids=["alone", "neighbours"])
def test_in_use_a_dictionary_encodes_as_it_was_trained_to(activation, form, company):
    beside = {"adaptive_neighbourhoods": stack_configs([AdaptiveNeighbourhoods(share=0.05, form=form)] * 2)}
    mechanisms = {**with_inhibition(form=form, in_use=True), **(beside if company else {})}
    state, x = trained(mechanisms, activation), WORLD.batch(7, 64).x
    stack, signals = state.in_use(mechanisms), gather_signals(mechanisms, state.memories, state.stack)
    expected = run_forward(state.stack, x, mechanisms, signals).codes.to_dense()
    plain = state.stack.encode(x).to_dense()
    assert ((expected < plain).sum((1, 2)) > 0).all()
    for codes in (stack.encode(x), encode(stack, x)):
        torch.testing.assert_close(codes.to_dense(), expected, atol=1e-5, rtol=1e-5)
    alone = torch.cat([encode(stack.member(index), x).to_dense() for index in range(2)])
    torch.testing.assert_close(alone, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(stack.probabilities(x) > 0, expected > 0)
    again = Stack.of({name: tensor.clone() for name, tensor in stack.tensors().items()}, stack.activation)
    assert torch.equal(again.encode(x).to_dense(), stack.encode(x).to_dense())


def test_by_default_a_trained_dictionary_encodes_without_it():
    mechanisms = with_inhibition()
    state = trained(mechanisms)
    assert state.in_use(mechanisms) is state.stack
    assert set(state.stack.tensors()) == {"encoder", "encoder_bias", "decoder"}


def test_inhibition_in_use_survives_a_normalization_that_is_folded_in():
    """Codes grow with the scale, all alike, so who is weakened stays the same."""
    stack = trained(with_inhibition(in_use=True)).in_use(with_inhibition(in_use=True))
    normalization = Normalization(torch.full((12,), 0.2), 3.0)
    x = WORLD.batch(7, 64).x
    folded = fold(stack, normalization).encode(3.0 * x + 0.2).to_dense()
    torch.testing.assert_close(folded, 3.0 * stack.encode(x).to_dense(), atol=1e-4, rtol=1e-4)


def test_a_run_saves_and_scores_the_dictionary_that_inhibits(tmp_path):
    config = {
        "world": {"dimensions": 12, "n_features": 20, "active": 3.0},
        "dictionary": {"d_sae": 24},
        "training": {"steps": 12, "batch": 64, "learning_rate": 0.01},
        "evaluation": {"samples": 512},
        "tracking": {"checks": 2, "samples": 128},
        "cases": {
            name: {"mechanisms": {"lateral_inhibition": {"radius": 6, "threshold": 0.9, "every": 3, "in_use": in_use}}}
            for name, in_use in (("in-training", False), ("in-use", True))
        },
        "sweep": {"seed": [0, 1]},
    }
    run = run_config(tmp_path, "run", config)
    training, use = (setting["metrics"]["l0"]["value"] for setting in run.scores()["settings"])
    assert use < 0.9 * training
    stacks = [load_stack(run.path, index) for index in range(2)]
    assert [bool(stack.inhibition) for stack in stacks] == [False, True]
    assert torch.equal(stacks[0].decoder, stacks[1].decoder)
    x = WORLD.batch(7, 512).x
    assert encode(stacks[1], x).l0().double().mean() < 0.9 * encode(stacks[0], x).l0().double().mean()
