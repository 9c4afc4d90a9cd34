"""φ against scikit-learn over every threshold, the choice of a feature against chance, unions against their rows.
A few features together, on codes made so that one, two or three of them are needed.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import matthews_corrcoef, precision_score, recall_score

from unbraid.metrics.matching import association
from unbraid.metrics.matching.association import add_features, associate, best, k_feature_phi, union_phi


def drawn(rng, n=100, f=4, c=3, signed=True, coarse=False, dense=False):
    """Codes of which some features are signed and all are often silent; coarse ones have many equal values."""
    codes = rng.standard_normal((n, f)) * (dense | (rng.random((n, f)) < 0.4))
    codes = np.round(2 * codes) if coarse else codes
    concepts = codes[:, :c] + rng.standard_normal((n, c)) > 0.7
    return codes if signed else np.abs(codes), concepts, rng.random(n) < 0.5


def every_cut(values):
    """Each set of rows a threshold may say: of those with values, the highest or the lowest, and never a silent row."""
    fired = np.unique(values[values != 0])
    crossing = (values != 0).all()
    for cut in fired:
        if cut > 0 or crossing:
            yield 1, values >= cut
        if cut < 0 or crossing:
            yield -1, values <= cut


@pytest.mark.filterwarnings("ignore:A single label")
@pytest.mark.parametrize("kind", [{}, {"coarse": True}, {"signed": False}, {"dense": True, "f": 2, "c": 2}])
def test_the_cut_is_the_best_of_all_by_scikit_learn(rng, kind):
    codes, concepts, fit = drawn(rng, **kind)
    found = associate(sparse.csr_array(codes), concepts, fit)
    for c in range(concepts.shape[1]):
        for j in range(codes.shape[1]):
            seen = codes[:, j] if (codes[:, j] == 0).any() == (codes[fit, j] == 0).any() else np.append(codes[:, j], 0)
            ways = {(s, tuple(said[: len(codes)][fit])) for s, said in every_cut(seen)}
            scores = [matthews_corrcoef(concepts[fit, c], said) for _, said in ways if any(said)]
            assert found.fit.phi()[c, j] == pytest.approx(max(scores))
            side, cut = found.sides[c, j], found.thresholds[c, j]
            said = (side * codes[:, j] >= side * cut) & (codes[:, j] != 0)
            assert matthews_corrcoef(concepts[fit, c], said[fit]) == pytest.approx(max(scores))
            held = concepts[~fit, c], said[~fit]
            assert found.held.phi()[c, j] == pytest.approx(matthews_corrcoef(*held))
            assert found.held.precision()[c, j] == pytest.approx(precision_score(*held, zero_division=0))
            assert found.held.recall()[c, j] == pytest.approx(recall_score(*held))


def test_a_feature_may_say_a_thing_by_being_low():
    concept = np.arange(40) % 4 == 0
    codes = np.where(concept, -2.0, np.arange(40) % 3)[:, None]
    found = associate(sparse.csr_array(codes), concept[:, None], np.arange(40) < 20)
    assert found.sides.item() == -1
    assert found.thresholds.item() == -1
    assert found.held.phi().item() == 1


def test_silence_says_nothing():
    """A feature that fires exactly where the concept is off cannot be right about it."""
    concept = np.arange(40) % 4 != 0
    found = associate(sparse.csr_array(1.0 * ~concept[:, None]), concept[:, None], np.arange(40) < 20)
    assert found.fit.phi().item() == -1


def test_purity_takes_off_the_base_rate():
    """A feature that fires always is right as often as the concept is on: precision .8, purity 0."""
    concept = np.arange(100) % 5 != 0
    codes = np.stack([np.ones(100), 1.0 * concept], 1)
    found = associate(sparse.csr_array(codes), concept[:, None], np.arange(100) < 50)
    np.testing.assert_allclose(found.held.precision(), [[0.8, 1]])
    np.testing.assert_allclose(found.held.purity(), [[0, 1]], atol=1e-12)
    np.testing.assert_allclose(found.held.phi(), [[0, 1]])


def test_choosing_does_not_flatter(rng):
    """Of 300 features that know nothing the best is far from 0 on the rows it was chosen on, and at 0 on the others."""
    codes = rng.random((1000, 300)) * (rng.random((1000, 300)) < 0.05)
    concepts = rng.random((1000, 30)) < 0.1
    found = associate(sparse.csr_array(codes), concepts, np.arange(1000) < 500)
    assert found.fit.phi().max(1).mean() > 0.15
    assert abs(best(found).mean_phi()) < 0.03


def test_the_best_feature_is_chosen_on_the_rows_fitted(rng):
    concept = np.arange(400) % 8 < 3
    fit = np.arange(400) < 200
    codes = np.stack([concept ^ (rng.random(400) < np.where(fit, a, b)) for a, b in ((0.02, 0.3), (0.1, 0))], 1)
    found = associate(sparse.csr_array(1.0 * codes), concept[:, None], fit)
    assert best(found).features.tolist() == [0]
    assert best(found).mean_phi() == pytest.approx(matthews_corrcoef(concept[~fit], codes[~fit, 0]))


def test_concepts_hardly_on_or_off_in_a_half_are_not_judged():
    fit = np.arange(100) < 50
    concepts = np.stack([np.arange(100) % 10 == 0, np.arange(100) < 20, np.arange(100) != 3], 1)
    found = associate(sparse.csr_array(1.0 * concepts), concepts, fit)
    assert found.judged.tolist() == [True, False, False]
    assert best(found).mean_phi() == 1
    np.testing.assert_array_equal(best(found).phi, [1, np.nan, np.nan])
    assert np.isnan(best(associate(sparse.csr_array(1.0 * concepts), concepts[:, 1:], fit)).mean_phi())


def test_a_feature_silent_on_one_half_or_on_all(rng):
    concept = np.arange(60)[:, None] % 3 == 0
    fit = np.arange(60) < 30
    codes = np.stack([concept[:, 0] & fit, concept[:, 0] & ~fit, np.zeros(60)], 1)
    found = associate(sparse.csr_array(1.0 * codes), concept, fit)
    np.testing.assert_allclose(found.fit.phi(), [[1, 0, 0]])
    np.testing.assert_allclose(found.held.phi(), [[0, 0, 0]])
    assert np.isinf(found.thresholds[0, 1:]).all()


@given(st.integers(0, 10**6), st.integers(1, 400))
def test_unions_and_blocks_change_nothing(seed, block):
    """With rows given to a feature its row of the table is that of a concept which is the union; a few at a time."""
    rng = np.random.default_rng(seed)
    codes, concepts, fit = drawn(rng, 60, 4, 3, signed=bool(seed % 2), coarse=bool(seed % 3))
    already = rng.random(codes.shape) < 0.2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(association, "SLOTS_AT_ONCE", block)
        found = associate(sparse.csr_array(codes), concepts, fit, already)
    for j in range(codes.shape[1]):
        alone = associate(sparse.csr_array(codes[:, [j]]), concepts | already[:, [j]], fit)
        np.testing.assert_array_equal(found.thresholds[:, [j]], alone.thresholds)
        np.testing.assert_array_equal(found.sides[:, [j]], alone.sides)
        for mine, theirs in ((found.fit, alone.fit), (found.held, alone.held)):
            for name in ("true", "said", "on"):
                np.testing.assert_array_equal(getattr(mine, name)[:, [j]], getattr(theirs, name))


@pytest.fixture
def halves(rng):
    """A concept, on in a third of the rows; features 0 and 1 have a part of it each, the others are noise."""
    on = rng.random(2000) < 1 / 3
    first = rng.random(2000) < 0.5
    codes = np.zeros((2000, 6))
    codes[on & first, 0], codes[on & ~first, 1] = 1.0, 2.0
    codes[:, 2:] = rng.random((2000, 4)) * (rng.random((2000, 4)) < 0.1)
    return sparse.csr_array(codes), on[:, None], np.arange(2000) % 2 == 0


def test_two_halves_are_the_whole_where_neither_alone_is(halves):
    codes, concepts, fit = halves
    found = associate(codes, concepts, fit)
    assert best(found).phi[0] < 0.75
    assert k_feature_phi(codes, concepts, fit, found)[0] == 1


def test_it_is_never_chosen_for_less_than_the_best_alone_and_is_measured_on_other_rows(halves, rng):
    codes, _, fit = halves
    concepts = rng.random((2000, 3)) < 0.2
    found = associate(codes, concepts, fit)
    few = k_feature_phi(codes, concepts, fit, found)
    assert (np.abs(few) < 0.15).all(), "of what no feature knows, choosing makes nothing on other rows"


def test_what_is_not_judged_has_none(halves):
    codes, concepts, fit = halves
    rare = np.zeros_like(concepts)
    rare[:2] = True
    both = np.hstack([concepts, rare])
    found = k_feature_phi(codes, both, fit, associate(codes, both, fit))
    assert np.isnan(found).tolist() == [False, True]


def test_features_are_added_while_they_help_and_at_most_four(rng):
    on = np.arange(600) < 300
    said = np.stack([(np.arange(600) // 60) == part for part in range(5)])
    chosen = add_features(sparse.csr_array(said.astype(np.float32)), on, np.zeros(600, bool))
    assert sorted(chosen) == sorted(set(chosen))
    assert len(chosen) == 4
    covered = said[chosen].any(0)
    assert union_phi(covered, on) == pytest.approx(matthews_corrcoef(on, covered))
    useless = sparse.csr_array((rng.random((3, 600)) < 0.5).astype(np.float32))
    assert add_features(useless, on, on.copy()) == []
