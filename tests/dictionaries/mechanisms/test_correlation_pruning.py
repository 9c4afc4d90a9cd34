"""What goes, of features that repeat each other; and where it goes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.dictionaries.mechanisms.hand_made import a_pass, a_stack
from unbraid.dictionaries.mechanisms import CorrelationPruning, Signals
from unbraid.dictionaries.mechanisms.correlation_pruning import fewest, percentiles
from unbraid.schedule import Moment

RNG = np.random.default_rng(1)
ALONE = np.maximum(RNG.standard_normal((200, 3)), 0)
TWIN = 0.5 * ALONE[:, :1]
"""Says what feature 0 says, at half its strength."""


def edited(mechanism, codes, signals=None, x=None, dimensions=8, stack=None):
    """What the first look makes anew."""
    forward = a_pass(codes, x, dimensions)
    stack = stack or a_stack(forward.codes.width, dimensions, len(forward.codes.values))
    memory, resets = mechanism.start(stack), []
    for _ in range(mechanism.every):
        memory = mechanism.observe(forward, memory, stack, signals or Signals())
        resets.append(mechanism.edit(forward, memory, stack, signals or Signals()))
    assert all(reset is None for reset in resets[:-1])
    return resets[-1]


def gone(*arguments, **named):
    reset = edited(*arguments, **named)
    return [] if reset is None else reset.features[0].nonzero()[:, 0].tolist()


def test_of_a_pair_the_less_active_goes_and_as_published_both():
    codes = np.hstack([ALONE, TWIN])
    assert gone(CorrelationPruning(every=3), codes) == [3]
    assert gone(CorrelationPruning(every=3, form="published"), codes) == [0, 3]
    assert gone(CorrelationPruning(every=1), ALONE) == gone(CorrelationPruning(every=1, form="published"), ALONE) == []


def test_it_goes_by_pearsons_correlation():
    noisy = ALONE[:, :1] * RNG.uniform(0, 1, (200, 1))
    codes = np.hstack([ALONE, noisy])
    correlation = np.corrcoef(codes.T)[0, 3]
    assert 0.6 < correlation < 0.99
    assert gone(CorrelationPruning(every=1, threshold=float(correlation) - 1e-4), codes) == [3]
    assert gone(CorrelationPruning(every=1, threshold=float(correlation) + 1e-4), codes) == []


def test_opposite_is_a_repetition_too():
    """Two that fire together, one the less the more the other."""
    f = RNG.uniform(0.1, 0.9, (200, 1))
    codes = np.hstack([ALONE, f, 0.5 - 0.5 * f])
    assert np.corrcoef(codes.T)[3, 4] < -0.99
    assert gone(CorrelationPruning(every=1), codes) == [4]
    assert gone(CorrelationPruning(every=1, form="published"), codes) == [3, 4]


def test_what_repeats_only_what_has_gone_stays():
    """Of a chain each repeats the one before; the second goes, and so the third says something again."""
    f = RNG.uniform(0, 1, (4000, 3))
    chain = np.stack([2 * f[:, 0] + f[:, 1], 0.95 * (f[:, 0] + f[:, 1]), 0.5 * (f[:, 0] + 2 * f[:, 1])], 1)
    correlations = np.corrcoef(chain.T)
    threshold = float((correlations[0, 2] + min(correlations[0, 1], correlations[1, 2])) / 2)
    assert correlations[0, 2] < threshold
    assert gone(CorrelationPruning(every=1, threshold=threshold), chain) == [1]
    assert gone(CorrelationPruning(every=1, threshold=threshold, form="published"), chain) == [0, 1, 2]


def test_importance_decides_who_goes_and_raises_the_bar():
    codes = np.hstack([ALONE, TWIN])
    later = Signals(importance=torch.tensor([[0.1, 0.2, 0.3, 0.4]]))
    assert gone(CorrelationPruning(every=1), codes, later) == [0]
    assert percentiles(later.importance).tolist() == [[0, 0.25, 0.5, 0.75]]

    noisy = np.hstack([ALONE, ALONE[:, :1] * RNG.uniform(0.4, 1, (200, 1))])
    correlation = float(np.corrcoef(noisy.T)[0, 3])
    low, high = (
        Signals(importance=torch.tensor([[1.0, 0.2, 0.3, 0.1]])),
        Signals(importance=torch.tensor([[1.0, 0.2, 0.1, 0.4]])),
    )
    just_below = CorrelationPruning(every=1, threshold=correlation - 0.01)
    assert gone(just_below, noisy, low) == [3]
    assert gone(just_below, noisy, high) == []


def test_as_published_the_bar_of_most_features_is_out_of_reach():
    codes = np.hstack([ALONE, TWIN])
    useful = Signals(importance=torch.tensor([[0.4, 0.2, 0.3, 0.1]]))
    assert gone(CorrelationPruning(every=1, form="published"), codes, useful) == [3]
    assert (
        gone(
            CorrelationPruning(every=1, form="published"),
            codes,
            Signals(importance=torch.tensor([[0.3, 0.2, 0.1, 0.4]])),
        )
        == []
    )


def test_features_that_hardly_fired_are_not_judged_but_as_published():
    rare = np.zeros((200, 2))
    rare[7] = 1, 2
    codes = np.hstack([ALONE, rare])
    assert gone(CorrelationPruning(every=1), codes) == []
    assert gone(CorrelationPruning(every=1, least=1), codes) == [3]
    assert gone(CorrelationPruning(every=1, form="published"), codes) == [3, 4]


def test_a_feature_that_always_fires_alike_correlates_with_nothing():
    codes = np.hstack([ALONE, np.ones((200, 2))])
    assert gone(CorrelationPruning(every=1), codes) == []


@pytest.mark.parametrize("form", ["corrected", "published"])
def test_new_rows_are_a_fifth_as_long_as_the_survivors_as_published_as_long_and_point_one_way(form, rng):
    x = torch.from_numpy(rng.standard_normal((200, 8)))
    stack = a_stack(4, 8)
    stack.encoder.mul_(torch.tensor([1.0, 2.0, 3.0, 40.0])[:, None])
    reset = edited(CorrelationPruning(every=1, form=form), np.hstack([ALONE, TWIN]), x=x, stack=stack)
    expected = 0.2 * 2.0 if form == "corrected" else 2.5
    anew = reset.features[0]
    np.testing.assert_allclose(reset.encoder[0, anew].norm(dim=-1), expected, rtol=1e-6)
    np.testing.assert_allclose(reset.decoder[0, anew].norm(dim=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(reset.encoder[0, anew], expected * reset.decoder[0, anew], rtol=1e-6)


def test_corrected_directions_are_the_worst_errors_without_what_survivors_say(rng):
    x = torch.from_numpy(rng.standard_normal((200, 8)))
    stack = a_stack(4, 8)
    reset = edited(CorrelationPruning(every=1), np.hstack([ALONE, TWIN]), x=x, stack=stack)
    survivors, worst = stack.decoder[0, :3].numpy(), x[x.norm(dim=1).argmax()].numpy()
    coefficients = np.linalg.lstsq(survivors.T, worst, rcond=None)[0]
    left = worst - coefficients @ survivors
    np.testing.assert_allclose(reset.decoder[0, 3], left / np.linalg.norm(left), atol=1e-9)
    np.testing.assert_allclose(survivors @ reset.decoder[0, 3].numpy(), 0, atol=1e-9)


@pytest.mark.parametrize("form", ["corrected", "published"])
def test_random_orthogonal_directions_say_nothing_that_survivors_or_each_other_say(form, rng):
    """Two pairs of twins: two go, or as published all four; the errors have no part in it."""
    codes = np.hstack([ALONE, TWIN, 0.5 * ALONE[:, 1:2]])
    mechanism = CorrelationPruning(every=1, form=form, directions="random_orthogonal")
    stack = a_stack(5, 8)
    inputs = [torch.from_numpy(rng.standard_normal((200, 8))) for _ in range(2)]
    resets = [edited(mechanism, codes, x=x, stack=stack) for x in inputs]
    assert torch.equal(resets[0].decoder, resets[1].decoder)
    lost = resets[0].features[0]
    assert int(lost.sum()) == (2 if form == "corrected" else 4)
    new, survivors = resets[0].decoder[0, lost].double(), stack.decoder[0, ~lost].double()
    torch.testing.assert_close(new @ new.T, torch.eye(len(new), dtype=torch.float64), atol=1e-6, rtol=0)
    assert (new @ survivors.T).abs().max() < 1e-6
    drawn = edited(mechanism.model_copy(update={"directions": "random"}), codes, stack=stack).decoder[0, lost]
    assert (drawn.double() @ survivors.T).abs().max() > 1e-2


def test_published_directions_are_drawn_anew_for_each_member_and_time():
    codes = np.hstack([ALONE, TWIN])
    reset = edited(CorrelationPruning(every=2, form="published"), np.stack([codes, codes]))
    again = edited(CorrelationPruning(every=2, form="published"), np.stack([codes, codes]))
    other = edited(CorrelationPruning(every=3, form="published"), np.stack([codes, codes]))
    assert torch.equal(reset.decoder, again.decoder)
    for one, two in (
        (reset.decoder[0, 0], reset.decoder[1, 0]),
        (reset.decoder[0, 0], reset.decoder[0, 3]),
        (reset.decoder[0], other.decoder[0]),
    ):
        assert (one - two).abs().max() > 0.1


def test_no_more_go_than_there_are_samples_and_the_least_important_first():
    gone = torch.tensor([[True, True, False, True]])
    rank = torch.tensor([[2, 0, 3, 1]])
    assert fewest(gone, rank, 2).tolist() == [[True, False, False, True]]
    assert fewest(gone, rank, 9).tolist() == gone.tolist()


@pytest.mark.parametrize(("form", "pruned"), [("corrected", False), ("published", True)])
@pytest.mark.parametrize("moment", [Moment(done=0.9), Moment(done=0.3, decaying=True)])
def test_nothing_goes_late_in_a_training_except_as_published(moment, form, pruned):
    codes, stack, mechanism = np.hstack([ALONE, TWIN]), a_stack(4), CorrelationPruning(every=1, form=form)
    memory, forward = mechanism.start(stack), a_pass(codes)
    early = mechanism.edit(replace(forward, moment=Moment(done=0.8)), memory, stack, Signals())
    late = mechanism.edit(replace(forward, moment=moment), memory, stack, Signals())
    assert early is not None
    assert (late is not None) == pruned


def test_where_all_go_the_mean_length_is_that_of_all():
    reset = edited(CorrelationPruning(every=1, form="published"), np.hstack([ALONE[:, :1], TWIN]))
    np.testing.assert_allclose(reset.encoder[0].norm(dim=-1), 1, rtol=1e-6)
