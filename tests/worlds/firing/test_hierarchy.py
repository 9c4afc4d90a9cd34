"""Hierarchies: a child never without its parent, siblings exclusive when asked, and the exact laws of both."""

import numpy as np
import pytest
from scipy import stats

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.worlds import Superposition

SAMPLES = 60_000
SHAPE = {"dimensions": 4, "n_features": 14, "decay": 0.8, "active": 2.5}
FREE = Superposition(**SHAPE, firing={"kind": "hierarchy", "children": 3, "child_probability": 0.6})
ONLY = Superposition(**SHAPE, firing={"kind": "hierarchy", "children": 3, "child_probability": 0.6, "exclusive": True})
# 14 features: 3 parents and 2 left over without a parent, then 3 × 3 children
PARENTS = [-1] * 5 + [0] * 3 + [1] * 3 + [2] * 3
BOTH = pytest.mark.parametrize(("world", "given"), [(FREE, 0.6), (ONLY, 0.2)], ids=["free", "exclusive"])


def theory(given):
    shares = [0.8**i for i in range(5)]
    shares += [shares[parent] * given for parent in PARENTS[5:]]
    return np.array([2.5 * share / sum(shares) for share in shares])


def fired(world, samples=SAMPLES):
    return world.batch(0, samples).truth.to_dense()[0].numpy() != 0


def within(counts, samples, probabilities):
    low, high = stats.binom.interval(1 - 1e-4, samples, probabilities)
    return ((low <= counts) & (counts <= high)).all()


@BOTH
def test_parents_and_probabilities_are_as_told(world, given):
    assert world.parents.tolist() == PARENTS
    np.testing.assert_allclose(world.probabilities.numpy(), theory(given), rtol=1e-12)
    assert float(world.probabilities.sum()) == pytest.approx(2.5)


@BOTH
def test_every_feature_fires_at_its_rate(world, given):
    assert within(fired(world).sum(0), SAMPLES, theory(given))


@BOTH
def test_a_child_never_fires_without_its_parent_and_else_at_the_rate_asked(world, given):
    active = fired(world)
    for child in range(5, 14):
        parent = active[:, PARENTS[child]]
        assert not (active[:, child] & ~parent).any()
        assert within((active[:, child] & parent).sum(), parent.sum(), given)


def test_exclusive_siblings_never_fire_together_and_free_ones_do_independently():
    for world, both in ((ONLY, 0), (FREE, 0.36)):
        active = fired(world)
        for first in range(5, 14):
            for second in (other for other in range(first + 1, 14) if PARENTS[other] == PARENTS[first]):
                parent = active[:, PARENTS[first]].sum()
                assert within((active[:, first] & active[:, second]).sum(), parent, both)


@BOTH
def test_families_are_independent_of_each_other(world, given):
    active, p = fired(world).astype(float), theory(given)
    family = np.array([0, 1, 2, 3, 4, *PARENTS[5:]])
    apart = family[:, None] != family[None]
    together = active.T @ active
    assert within(together[apart], SAMPLES, np.outer(p, p)[apart])


@pytest.mark.parametrize(
    ("world", "given", "law"), [(FREE, 0.6, [0.064, 0.288, 0.432, 0.216]), (ONLY, 0.2, [0.4, 0.6])]
)
def test_the_number_active_has_its_exact_law(world, given, law):
    """A family adds 0, or 1 and its children's number: binomial (3, .6), or one with probability .6."""
    total, p = np.ones(1), theory(given)
    for parent in range(3):
        total = np.convolve(total, [1 - p[parent], *(p[parent] * np.array(law))])
    for plain in (3, 4):
        total = np.convolve(total, [1 - p[plain], p[plain]])
    active = np.bincount(fired(world).sum(1), minlength=total.size)
    most = np.flatnonzero(total * SAMPLES > 5).max()  # from there on in one bin
    table = [np.append(counts[:most], counts[most:].sum()) for counts in (active, total * SAMPLES)]
    assert stats.chisquare(*table).pvalue > 0.001


def test_a_child_may_always_follow():
    world = Superposition(**SHAPE, firing={"kind": "hierarchy", "children": 2, "child_probability": 1.0})
    active, parents = fired(world, 3000), world.parents.numpy()
    for child in np.flatnonzero(parents >= 0):
        assert (active[:, child] == active[:, parents[child]]).all()


def test_one_parent_for_all_the_rest():
    world = Superposition(**{**SHAPE, "active": 1.0}, firing={"kind": "hierarchy", "children": 13})
    assert world.parents.tolist() == [-1] + [0] * 13
    assert fired(world, 3000).any()


def test_more_children_than_features_are_refused():
    with pytest.raises(UserError, match="14 children needs 15 features and there are 14; accepted: children below 14"):
        check(Superposition, {**SHAPE, "firing": {"kind": "hierarchy", "children": 14}}, "here")


def test_more_active_than_the_families_allow_is_refused_with_the_limit():
    firing = {"kind": "hierarchy", "children": 3, "child_probability": 0.6}
    limit = 2.5 / theory(0.6)[0]
    Superposition(**{**SHAPE, "active": 0.99 * limit}, firing=firing)
    with pytest.raises(UserError, match=f"accepted: active below {limit:.3g}"):
        check(Superposition, {**SHAPE, "active": 1.01 * limit, "firing": firing}, "here")


@pytest.mark.parametrize("bad", [{"children": 0}, {"child_probability": 0.0}, {"child_probability": 1.1}])
def test_impossible_settings_are_refused(bad):
    with pytest.raises(UserError, match=r"here: firing\."):
        check(Superposition, {**SHAPE, "firing": {"kind": "hierarchy", **bad}}, "here")
