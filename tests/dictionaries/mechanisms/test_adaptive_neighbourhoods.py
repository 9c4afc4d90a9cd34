import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.mechanisms import (
    AdaptiveNeighbourhoods,
    Forward,
    LateralInhibition,
    Signals,
    adaptive_neighbourhoods,
)
from unbraid.dictionaries.mechanisms.mechanism import check_signals
from unbraid.errors import UserError

MEMBERS, SAMPLES, FEATURES = 2, 9, 12
STACK = Stack.start(Dictionary(d_sae=FEATURES), 3, range(MEMBERS))


def batches(rng, number=6, density=0.3, features=FEATURES):
    """Codes in which some pairs fire together more often than chance."""
    for _ in range(number):
        values = (rng.random((MEMBERS, SAMPLES, features)) < density).astype(np.float32)
        values[..., 1] = np.maximum(values[..., 0] * (rng.random((MEMBERS, SAMPLES)) < 0.9), values[..., 1])
        yield values


def as_lists(values):
    features = np.argsort(values == 0, axis=-1, kind="stable")
    kept = np.take_along_axis(values, features, -1)
    return Codes(torch.from_numpy(np.where(kept > 0, features, 0)).int(), torch.from_numpy(kept), values.shape[-1])


def observe(mechanism, memory, codes, stack=STACK):
    forward = Forward(torch.zeros(SAMPLES, 3), codes, torch.zeros(MEMBERS, SAMPLES, 3))
    return mechanism.observe(forward, memory, stack, Signals())


def dense_history(seen, momentum):
    """The whole matrix of what fired together, which the lists stand for."""
    history = np.zeros((MEMBERS, seen[0].shape[-1], seen[0].shape[-1]))
    for values in seen:
        history = momentum * history + (1 - momentum) * np.einsum("mbi,mbj->mij", values, values)
    return history


def spread(memory, features=FEATURES):
    """The lists as a matrix, with what each feature fired on its diagonal."""
    matrix = np.zeros((MEMBERS, features, features))
    for m, i, r in np.argwhere(memory["partners"].numpy() >= 0):
        assert matrix[m, i, memory["partners"][m, i, r]] == 0, "a partner is listed once"
        matrix[m, i, memory["partners"][m, i, r]] = memory["together"][m, i, r]
    matrix[:, np.arange(features), np.arange(features)] = memory["fires"]
    return matrix


@pytest.mark.parametrize(
    "layout", [as_lists, lambda values: Codes.dense(torch.from_numpy(values))], ids=["lists", "dense"]
)
def test_with_places_enough_the_lists_are_the_whole_history(layout, rng):
    mechanism, seen = AdaptiveNeighbourhoods(momentum=0.8), list(batches(rng))
    memory = mechanism.start(STACK)
    for values in seen:
        memory = observe(mechanism, memory, layout(values))
    np.testing.assert_allclose(spread(memory), dense_history(seen, 0.8), atol=1e-5)
    assert (memory["together"].diff(dim=-1) <= 0).all()


def test_with_few_places_nothing_is_too_large_and_the_most_frequent_stay(rng):
    stack, seen = Stack.start(Dictionary(d_sae=40), 3, range(MEMBERS)), list(batches(rng, 60, 0.15, 40))
    mechanism = AdaptiveNeighbourhoods(momentum=0.9, places=4)
    memory = mechanism.start(stack)
    for values in seen:
        memory = observe(mechanism, memory, as_lists(values), stack)
    exact = dense_history(seen, 0.9)
    assert (spread(memory, 40) <= exact + 1e-5).all()
    assert (memory["partners"][:, 0, 0] == 1).all()
    assert (memory["partners"][:, 1, 0] == 0).all()
    np.testing.assert_allclose(memory["together"][:, 0, 0], exact[:, 0, 1], rtol=0.02)


def test_neighbours_are_those_that_accompany_a_share_of_its_firing(rng):
    mechanism, seen = AdaptiveNeighbourhoods(momentum=0.8, share=0.4, radius=3), list(batches(rng))
    memory = mechanism.start(STACK)
    for values in seen:
        memory = observe(mechanism, memory, as_lists(values))
    history, neighbours = dense_history(seen, 0.8), mechanism.signal(memory, STACK)["neighbours"]
    cut = 0
    for m, i in np.ndindex(MEMBERS, FEATURES):
        others = sorted((-history[m, i, j], j) for j in range(FEATURES) if j != i)
        near = {j for value, j in others if -value > 0.4 * history[m, i, i]}
        found = set(neighbours[m, i].tolist()) - {-1}
        assert found <= near
        assert len(found) == min(3, len(near))
        assert all(history[m, i, j] >= -others[2][0] - 1e-6 for j in found)
        cut += len(near) > 3
    assert cut > 0


def test_as_published_their_number_counts_the_feature_itself(rng):
    mechanism = AdaptiveNeighbourhoods(momentum=0.8, share=0.9, radius=5, form="published")
    seen, memory = list(batches(rng)), mechanism.start(STACK)
    for values in seen:
        memory = observe(mechanism, memory, as_lists(values))
    history, neighbours = dense_history(seen, 0.8), mechanism.signal(memory, STACK)["neighbours"]
    for m, i in np.ndindex(MEMBERS, FEATURES):
        radius = min(5, int((history[m, i] > 0.9).sum()))
        met = sum(history[m, i, j] > 0 for j in range(FEATURES) if j != i)
        found = [j for j in neighbours[m, i].tolist() if j != -1]
        assert len(found) == min(radius, met)
        least = min((history[m, i, j] for j in found), default=np.inf)
        rest = [history[m, i, j] for j in range(FEATURES) if j != i and j not in found]
        assert max(rest) <= least + 1e-6


def test_with_radius_0_it_says_nothing_and_without_a_reader_it_is_refused(rng):
    mechanism = AdaptiveNeighbourhoods(radius=0)
    memory = observe(mechanism, mechanism.start(STACK), as_lists(next(batches(rng))))
    assert mechanism.signal(memory, STACK)["neighbours"].shape[-1] == 0
    check_signals({"adaptive_neighbourhoods": mechanism, "lateral_inhibition": LateralInhibition()})
    with pytest.raises(UserError, match="writes 'neighbours', which nothing enabled reads"):
        check_signals({"adaptive_neighbourhoods": mechanism})


def test_silencing_does_not_part_neighbours(rng):
    mechanism, values = AdaptiveNeighbourhoods(), next(batches(rng))
    silent = Forward(
        torch.zeros(SAMPLES, 3),
        Codes.dense(torch.zeros(MEMBERS, SAMPLES, FEATURES)),
        torch.zeros(MEMBERS, SAMPLES, 3),
        would_fire=as_lists(values),
    )
    memory = mechanism.observe(silent, mechanism.start(STACK), STACK, Signals())
    np.testing.assert_allclose(spread(memory), dense_history([values], 0.99), atol=1e-6)


def test_a_feature_that_starts_anew_leaves_every_list(rng):
    mechanism, seen = AdaptiveNeighbourhoods(momentum=0.8, share=0.0), list(batches(rng))
    memory = mechanism.start(STACK)
    for values in seen[:4]:
        memory = observe(mechanism, memory, as_lists(values))
    for name, beginning in mechanism.start(STACK).items():
        memory[name][:, 5] = beginning[:, 5]
    neighbours = mechanism.signal(memory, STACK)["neighbours"]
    assert not (neighbours == 5).any()
    assert (neighbours != -1).any()
    memory = observe(mechanism, memory, as_lists(seen[4]))
    expected = dense_history(seen[:5], 0.8)
    since = dense_history(seen[4:5], 0.8)
    expected[:, 5], expected[:, :, 5] = since[:, 5], since[:, :, 5]
    np.testing.assert_allclose(spread(memory), expected, atol=1e-5)


def test_where_there_are_too_many_pairs_the_first_samples_stand_for_the_whole(rng, monkeypatch):
    mechanism, values = AdaptiveNeighbourhoods(momentum=0.8), np.ones((MEMBERS, SAMPLES, FEATURES), np.float32)
    values[:, 3:, 0] = 0
    monkeypatch.setattr(adaptive_neighbourhoods, "MOST_PAIRS", 3 * FEATURES**2 + 1)
    memory = observe(mechanism, mechanism.start(STACK), as_lists(values))
    np.testing.assert_allclose(spread(memory), np.full((MEMBERS, FEATURES, FEATURES), 0.2 * SAMPLES), rtol=1e-6)
