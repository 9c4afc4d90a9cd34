import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.mechanisms import Forward, LateralInhibition, Signals
from unbraid.dictionaries.mechanisms.lateral_inhibition import blocks, inhibit, inhibit_dense, nearest_by_cosine

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
