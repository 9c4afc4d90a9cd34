"""Verdicts on dictionaries built by hand to deserve them, on chance, and under relabelling."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import matthews_corrcoef

from unbraid.metrics.matching.association import associate, best
from unbraid.metrics.matching.thresholds import DEFAULT
from unbraid.metrics.matching.verdicts import CONCEPTS, FEATURES, UNJUDGED, match_concepts

ROWS = 3000
A, B, C, D, GENERAL, SPECIAL, LINE = range(7)


@pytest.fixture
def world(rng):
    """Four values of one factor, a tenth of the rows each; a concept with a half of it that has a name of its own,
    apart from them; and one that is on in four rows of five."""
    person, thing = rng.integers(0, 10, ROWS), rng.integers(0, 10, ROWS)
    columns = [person == value for value in range(4)]
    columns += [thing < 2, thing < 1, rng.random(ROWS) < 0.8]
    return np.stack(columns, 1), rng.random(ROWS) < 0.5


def strengths(rng, on):
    return on * (1 + rng.random(on.shape))


def judged(rng, columns, world):
    return match_concepts(sparse.csr_array(strengths(rng, np.stack(columns, 1))), *world)


def verdicts(of):
    return [one.verdict for one in of]


def total(shares):
    return math.fsum(shares.values())


def test_the_truth_recovers_all(rng, world):
    found = judged(rng, world[0].T, world)
    assert verdicts(found.concepts) == ["recovered"] * 7
    assert verdicts(found.features) == ["match"] * 7
    assert [one.features for one in found.concepts] == [(j,) for j in range(7)]
    assert [one.concepts for one in found.features] == [(c,) for c in range(7)]
    assert [one.phi for one in found.concepts] == [1] * 7
    assert found.concept_shares() == dict.fromkeys(CONCEPTS, 0) | {"recovered": 1}
    assert found.feature_shares() == dict.fromkeys(FEATURES, 0) | {"match": 1}


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_a_concept_in_parts_is_split(rng, world, parts):
    """Two equal parts have φ = √½ each, and that is not enough to be recovered."""
    which = rng.integers(0, parts, ROWS)
    found = judged(rng, [*world[0].T[1:], *(world[0][:, A] & (which == part) for part in range(parts))], world)
    assert verdicts(found.concepts) == ["split"] + 6 * ["recovered"]
    assert found.concepts[A].features == tuple(range(6, 6 + parts))
    assert found.concepts[A].phi == 1
    assert sorted(verdicts(found.features[6:])) == ["duplicate"] * (parts - 1) + ["match"]
    assert all(one.concepts == (A,) for one in found.features[6:])


def test_a_rare_concept_in_two_parts_is_split_too(rng):
    """Of a concept in a hundred, half has φ = √(½ · .99 / .995) = .705 with it."""
    rows = np.arange(ROWS)
    concept = rows % 100 == 0
    world = concept[:, None], rows % 200 < 100
    found = judged(rng, [concept & (rows // 200 % 2 == part) for part in (0, 1)], world)
    assert (found.concepts[0].verdict, found.concepts[0].features) == ("split", (0, 1))


def test_leaning_to_a_frequent_concept_is_not_standing_for_it(rng, world):
    """On in four rows of five, and twice as often said there: precision .89, purity .44, and not by luck."""
    often = rng.random(ROWS) < np.where(world[0][:, LINE], 0.4, 0.2)
    found = judged(rng, [often], world)
    assert found.features[0].verdict == "spurious"
    assert found.features[0].purity == pytest.approx((0.32 / 0.36 - 0.8) / 0.2, abs=0.1)
    assert found.concepts[LINE].verdict == "missed"


def test_a_concept_in_ten_parts_is_missed_and_its_parts_say_it_again(rng, world):
    which = rng.integers(0, 10, ROWS)
    found = judged(rng, [world[0][:, A] & (which == part) for part in range(10)], world)
    assert found.concepts[A].verdict == "missed"
    assert sorted(verdicts(found.features)) == ["duplicate"] * 9 + ["match"]


@pytest.mark.parametrize("merged", [(A, B), (A, B, C), (A, B, C, D), (A, SPECIAL)])
def test_concepts_with_one_feature_are_merged(rng, world, merged):
    rest = [c for c in range(7) if c not in merged]
    found = judged(rng, [world[0][:, merged].any(1), *world[0][:, rest].T], world)
    for c in merged:
        assert (found.concepts[c].verdict, found.concepts[c].features) == ("merged", (0,))
    assert {found.concepts[c].verdict for c in rest} == {"recovered"}
    assert (found.features[0].verdict, found.features[0].concepts) == ("mixture", merged)
    assert found.features[0].phi == 1


def test_rare_concepts_with_one_feature_are_merged_too(rng):
    """The rarer two equal concepts are, the nearer φ of their union with one of them comes to √½ from below."""
    concepts = np.arange(ROWS)[:, None] % 100 == [0, 1]
    found = judged(rng, [concepts.any(1)], (concepts, np.arange(ROWS) % 200 < 100))
    assert verdicts(found.concepts) == ["merged", "merged"]
    assert verdicts(found.features) == ["mixture"]


def test_a_feature_for_one_concept_and_a_part_of_a_larger_one_is_a_mixture(rng, world):
    """Its union with the whole of the other has a lower φ, and says what it is nevertheless."""
    on = world[0][:, A] | (world[0][:, GENERAL] & (rng.random(ROWS) < 0.25))
    assert matthews_corrcoef(world[0][:, A], on) > matthews_corrcoef(world[0][:, [A, GENERAL]].any(1), on)
    found = judged(rng, [on], (world[0][:, :SPECIAL], world[1]))
    assert (found.features[0].verdict, found.features[0].concepts) == ("mixture", (A, GENERAL))


def test_a_small_concept_in_the_match_of_a_large_one_is_merged(rng, world):
    """Four fifths of what it says is the large one: it is its match all the same."""
    rare = rng.permutation(ROWS) < 80
    concepts = np.column_stack([world[0], rare])
    found = judged(rng, [concepts[:, [A, 7]].any(1)], (concepts, world[1]))
    assert (found.features[0].verdict, found.features[0].concepts) == ("match", (A,))
    assert [found.concepts[c].verdict for c in (A, 7)] == ["recovered", "merged"]


def test_a_concept_and_one_inside_it_are_no_mixture(rng, world):
    """All of the special one, a tenth of the rows, and a fifth of the rest of the general one, four tenths."""
    value = rng.integers(0, 10, ROWS)
    concepts = np.stack([value < 1, value < 4], 1)
    on = concepts[:, 0] | (concepts[:, 1] & (rng.random(ROWS) < 0.2))
    found = judged(rng, [on], (concepts, world[1]))
    assert found.features[0].purity < 0.7
    assert found.features[0].concepts == (0,)


def test_a_general_feature_silent_where_a_specific_one_fires_is_absorbed(rng, world):
    columns = world[0].T.copy()
    columns[GENERAL] &= ~columns[SPECIAL]
    found = judged(rng, columns, world)
    assert verdicts(found.concepts) == ["recovered"] * 4 + ["absorbed", "recovered", "recovered"]
    assert found.concepts[GENERAL].features == (GENERAL, SPECIAL)
    assert verdicts(found.features) == ["match"] * 7


def test_a_concept_said_by_narrower_ones_only_is_absorbed(rng, world):
    concepts = np.column_stack([world[0], world[0][:, GENERAL] & ~world[0][:, SPECIAL]])
    found = judged(rng, concepts[:, [SPECIAL, 7]].T, (concepts, world[1]))
    assert (found.concepts[GENERAL].verdict, found.concepts[GENERAL].features) == ("absorbed", (0, 1))
    assert [found.features[j].concepts for j in (0, 1)] == [(SPECIAL,), (7,)]


def test_a_concept_without_a_feature_is_missed(rng, world):
    found = judged(rng, world[0][:, [B, C, GENERAL]].T, world)
    assert [c for c, one in enumerate(found.concepts) if one.verdict == "missed"] == [A, D, SPECIAL, LINE]
    assert found.concept_shares() == pytest.approx(dict.fromkeys(CONCEPTS, 0) | {"recovered": 3 / 7, "missed": 4 / 7})


def test_every_kind_of_feature(rng, world):
    on = world[0]
    again, chance, always = on[:, A] & (rng.random(ROWS) < 0.5), rng.random(ROWS) < 0.1, np.ones(ROWS, bool)
    columns = [on[:, A], again, on[:, [B, C]].any(1), chance, np.zeros(ROWS, bool), always]
    found = judged(rng, columns, world)
    assert verdicts(found.features) == ["match", "duplicate", "mixture", "spurious", "dead", "spurious"]
    assert [one.concepts for one in found.features] == [(A,), (A,), (B, C), (), (), ()]
    assert total(found.feature_shares()) == pytest.approx(1, abs=1e-12)


def test_a_feature_recovers_two_concepts_only_if_they_are_the_same(rng, world):
    """98 % alike: one and the same. Three quarters alike: the other one is merged with it."""
    on, moved = world[0][:, A], {}
    for share in (0.02, 0.15):
        out = on & (rng.random(ROWS) < share)
        into = rng.permutation(np.flatnonzero(~on & ~world[0][:, B]))[: out.sum()]
        moved[share] = on & ~out
        moved[share][into] = True
        found = judged(rng, [on], (np.column_stack([on, moved[share]]), world[1]))
        assert matthews_corrcoef(on, moved[share]) > DEFAULT.good_phi
        assert verdicts(found.concepts) == ["recovered", "recovered" if share < 0.1 else "merged"]
        assert found.features[0].concepts == (0,)


def test_concepts_not_on_in_both_halves_are_left_out(rng, world):
    concepts = np.column_stack([world[0][:, A] & world[1], np.zeros(ROWS, bool), world[0][:, B], np.ones(ROWS, bool)])
    found = judged(rng, concepts.T, (concepts, world[1]))
    assert verdicts(found.concepts) == [UNJUDGED, UNJUDGED, "recovered", UNJUDGED]
    assert total(found.concept_shares()) == 1
    assert verdicts(found.features) == ["spurious", "dead", "match", "spurious"]
    assert found.features[2].concepts == (2,)
    none = judged(rng, concepts.T, (concepts[:, :2], world[1]))
    assert verdicts(none.features) == ["spurious", "dead", "spurious", "spurious"]
    assert all(np.isnan(share) for share in none.concept_shares().values())


def test_low_values_say_things_too(rng, world):
    codes = strengths(rng, world[0]) * np.where(np.arange(7) % 2, -1, 1)
    found = match_concepts(sparse.csr_array(codes), *world)
    assert verdicts(found.concepts) == ["recovered"] * 7
    assert [one.side for one in found.features] == [1, -1, 1, -1, 1, -1, 1]


def test_chance(rng, world):
    """Features that know nothing: recovery near 0, all concepts missed, nearly all features spurious."""
    codes = sparse.csr_array(rng.random((ROWS, 400)) * (rng.random((ROWS, 400)) < 0.02))
    found = match_concepts(codes, *world)
    assert verdicts(found.concepts) == ["missed"] * 7
    assert found.feature_shares()["spurious"] >= 0.98
    assert abs(best(associate(codes, *world)).mean_phi()) < 0.05
    dense = match_concepts(sparse.csr_array(rng.standard_normal((ROWS, 40))), *world)
    assert verdicts(dense.features) == ["spurious"] * 40


def messy(rng, features=14):
    """Features that fire for a few concepts, not always, with strengths and noise of their own, some of them signed."""
    person, thing = rng.integers(0, 8, 800), rng.integers(0, 6, 800)
    concepts = np.column_stack([person[:, None] == np.arange(5), thing[:, None] < [1, 2, 5], rng.random(800) < 0.003])
    weights = rng.standard_normal((9, features)) * (rng.random((9, features)) < 0.25)
    codes = concepts @ weights + 0.1 * rng.standard_normal((800, features))
    codes[(np.abs(codes) < 0.25) | (rng.random(codes.shape) < rng.random(features) * 0.3)] = 0
    codes[:, features // 2 :] = np.maximum(codes[:, features // 2 :], 0)
    return codes, concepts, rng.random(800) < 0.5


@settings(max_examples=25)
@given(st.integers(0, 10**6))
def test_relabelling_features_relabels_verdicts_and_what_is_said_of_them_is_so(seed):
    rng = np.random.default_rng(seed)
    codes, concepts, fit = messy(rng)
    together = associate(sparse.csr_array(codes), concepts, fit)
    heights = np.sort(together.fit.phi()[together.judged].round(9), 1)
    assume((heights[:, -1] > heights[:, -2]).all())  # of features as good as each other the first is taken
    order = rng.permutation(codes.shape[1])
    found, moved = (match_concepts(sparse.csr_array(each), concepts, fit) for each in (codes, codes[:, order]))
    assert moved.features == tuple(found.features[j] for j in order)
    for one, other in zip(found.concepts, moved.concepts, strict=True):
        assert other.verdict == one.verdict
        assert sorted(order[list(other.features)]) == sorted(one.features)
        assert other.phi == pytest.approx(one.phi, nan_ok=True)
    assert total(found.concept_shares()) == pytest.approx(1, abs=1e-12)
    assert total(found.feature_shares()) == pytest.approx(1, abs=1e-12)
    for j, one in enumerate(found.features):
        said = (one.side * codes[:, j] >= one.side * one.threshold) & (codes[:, j] != 0)
        if one.concepts:
            union = concepts[:, list(one.concepts)].any(1)
            assert one.phi == pytest.approx(matthews_corrcoef(union[~fit], said[~fit]))
        assert (len(one.concepts) > 1) == (one.verdict == "mixture")
    for c, one in enumerate(found.concepts):
        if one.verdict in ("recovered", "split", "absorbed"):
            side, cut = together.sides[c], together.thresholds[c]
            said = ((side * codes >= side * cut) & (codes != 0))[:, list(one.features)].any(1)
            assert one.phi == pytest.approx(matthews_corrcoef(concepts[~fit, c], said[~fit]))
            assert one.phi >= DEFAULT.good_phi
