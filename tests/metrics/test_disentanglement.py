"""DCI on codes whose answer has a closed form, its sums by the published formula, its predictor by another solver.
Mutual information by scikit-learn's on dense bins, MIG and modularity by their published sums and closed forms.
SAP by an implementation that tries every feature, and on codes whose gap has a closed form.
All scores at once: on a perfect code, on a twin of it, on noise, and what chance permutes.
"""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import gammaincc
from scipy.stats import entropy
from sklearn.metrics import balanced_accuracy_score, mutual_info_score
from sklearn.svm import LinearSVC

from unbraid.metrics import disentanglement as module
from unbraid.metrics.absorption import l1_probe
from unbraid.metrics.disentanglement import (
    accident,
    dci,
    dci_completeness,
    dci_disentanglement,
    disentanglement,
    entropies,
    fit_l1,
    mig,
    modularity,
    mutual_information,
    sap,
    scores_of,
)


def every_combination(*sizes, times=20):
    """Factors that know nothing of each other, exactly: each combination equally often, also among the train rows."""
    grid = np.stack(np.meshgrid(*[np.arange(size) for size in sizes], indexing="ij"), -1).reshape(-1, len(sizes))
    rows = np.tile(grid, (times, 1))
    train = np.arange(len(rows)) < len(rows) // 2
    return {f"factor {k}": rows[:, k] for k in range(len(sizes))}, train


def a_feature_per_value(factors):
    return np.concatenate([np.eye(values.max() + 1)[values] for values in factors.values()], 1)


def test_one_feature_a_factor_is_one_in_all_three():
    factors, train = every_combination(2, 2, 2)
    found = dci(sparse.csr_array(np.stack(list(factors.values()), 1)), factors, train)
    assert (found.disentanglement, found.completeness, found.informativeness) == pytest.approx((1, 1, 1))
    np.testing.assert_array_equal(found.importance > 0, np.eye(3, dtype=bool))


def test_one_feature_a_value_is_pure_but_complete_only_up_to_the_number_of_values():
    factors, train = every_combination(3, 4)
    found = dci(sparse.csr_array(a_feature_per_value(factors)), factors, train)
    assert (found.disentanglement, found.informativeness) == pytest.approx((1, 1))
    assert found.completeness == pytest.approx(1 - (np.log(3) + np.log(4)) / 2 / np.log(7), abs=1e-4)


def test_a_feature_that_tells_two_factors_alike_has_no_disentanglement():
    """From a + b each is told right at 0 and 2, and at 1 for one of its values."""
    factors, train = every_combination(2, 2)
    both = sum(factors.values())
    found = dci(sparse.csr_array(np.stack([both, 0 * both], 1)), factors, train)
    assert found.disentanglement == pytest.approx(0, abs=1e-6)
    assert found.informativeness == 0.75
    assert np.isnan(found.completeness)  # of the two features one is dead


def test_d_and_c_are_those_of_the_published_code(rng):
    """disentanglement_lib's entropies for D; for C their mean over factors, as Eastwood and Williams take it."""
    table = rng.exponential(size=(12, 5)) * (rng.random((12, 5)) < 0.6)
    by_feature, by_factor = 1 - entropy(table.T + 1e-11, base=5), 1 - entropy(table + 1e-11, base=12)
    assert dci_disentanglement(table) == pytest.approx((by_feature * table.sum(1) / table.sum()).sum())
    assert dci_completeness(table, 12) == pytest.approx(by_factor.mean())
    assert dci_completeness(np.vstack([table, np.zeros((30, 5))]), 12) == pytest.approx(by_factor.mean())


def test_the_predictor_is_the_l1_probe(rng):
    """Another solver, run for long, ends at the same weights."""
    rows = sparse.csr_array(rng.random((400, 30)) * (rng.random((400, 30)) < 0.3))
    dense = rows.toarray()
    known = np.stack([dense[:, 0] + 0.3 * rng.random(400) > 0.4, dense[:, 3] - dense[:, 4] > 0.1], 1)
    expected = l1_probe(rows, known, 8000)
    assert 0 < (expected != 0).sum() < expected.size
    np.testing.assert_allclose(fit_l1(rows, known)[0], expected, atol=0.01)


def test_importance_adds_up_over_values_and_two_values_are_one_question_counted_twice(rng):
    factors, train = every_combination(2, 3)
    codes = a_feature_per_value(factors)[:, 1:] + 0.1 * rng.random((120, 4))
    found = dci(sparse.csr_array(codes), factors, train).importance
    rows = sparse.csr_array(codes[train] / codes[train].std(0))
    for k, values in enumerate(factors.values()):
        expected = np.abs(l1_probe(rows, values[train][:, None] == np.unique(values), 5000)).sum(1)
        np.testing.assert_allclose(found[:, k], expected, atol=0.02 * expected.max())


def test_it_is_asked_on_the_rows_it_was_not_fitted_on():
    factors, train = every_combination(2, 2)
    codes = sparse.csr_array(np.stack([np.where(train, v, 1 - v) for v in factors.values()], 1))
    assert dci(codes, factors, train).informativeness == 0


def test_informativeness_weighs_a_rare_value_like_a_common_one():
    """One feature misses half of the rare value: balanced that is 3/4, plainly it would be 19/20."""
    values = np.arange(200) % 10 // 9
    codes = np.stack([values * (np.arange(200) % 20 == 9), 1 - (np.arange(200) % 2)], 1)
    found = dci(sparse.csr_array(codes.astype(float)), {"rare": values}, np.arange(200) < 100, 0.2)
    assert found.informativeness == pytest.approx(0.75)


def test_rows_without_a_value_are_left_out():
    """Where a factor has no value its feature says the contrary."""
    factors, train = every_combination(2, 2, 2, times=24)
    unknown = np.arange(len(train)) % 24 < 8
    codes = np.stack([np.where(unknown, 1 - v, v) for v in factors.values()], 1)
    found = dci(sparse.csr_array(codes), {name: np.where(unknown, -1, v) for name, v in factors.items()}, train)
    assert (found.disentanglement, found.completeness, found.informativeness) == pytest.approx((1, 1, 1))


def test_units_dead_features_and_constant_ones_change_nothing(rng):
    factors, train = every_combination(3, 2, 2)
    codes = a_feature_per_value(factors) * rng.random((240, 7))
    more = np.concatenate([codes * 10.0 ** rng.integers(-3, 4, 7), np.zeros((240, 4)), np.full((240, 1), 0.1)], 1)
    late = np.where(train, 0, rng.random(240))[:, None]  # fires on the rows asked, and only there
    one, other = (dci(sparse.csr_array(each), factors, train) for each in (codes, np.hstack([more, late])))
    assert other.disentanglement == pytest.approx(one.disentanglement, abs=1e-3)
    assert other.completeness == pytest.approx(one.completeness, abs=1e-3)
    assert other.informativeness == one.informativeness
    assert (other.importance[7:] == 0).all()


def test_noise_tells_as_much_as_chance(rng):
    factors = {str(size): rng.integers(0, size, 2000) for size in (2, 3, 5)}
    codes = sparse.random_array((2000, 60), density=0.05, rng=rng, format="csr")
    found = dci(codes, factors, rng.random(2000) < 0.5)
    assert found.informativeness == pytest.approx((1 / 2 + 1 / 3 + 1 / 5) / 3, abs=0.03)
    assert found.completeness < 0.3


def test_what_cannot_be_asked_is_left_out_and_what_is_not_told_is_nothing():
    factors, train = every_combination(2, 2)
    codes = sparse.csr_array(np.stack(list(factors.values()), 1))
    constant, only_fitted = np.zeros(80, int), np.where(train, factors["factor 0"], -1)
    found = dci(codes, {**factors, "constant": constant, "only fitted": only_fitted}, train)
    assert (found.disentanglement, found.completeness, found.informativeness) == pytest.approx((1, 1, 1))
    assert np.isnan(found.importance).all(0).tolist() == [False, False, True, True]
    alone = dci(codes, {"a": factors["factor 0"]}, train)
    assert np.isnan(alone.disentanglement)
    assert alone.completeness == 1
    nothing = dci(codes, {"constant": constant}, train)
    assert np.isnan([nothing.disentanglement, nothing.completeness, nothing.informativeness]).all()
    silent = dci(codes, factors, train, penalty=1.0)
    assert (silent.disentanglement, silent.completeness, silent.informativeness) == (0, 0, 0.5)


def dense_information(codes, factors, discretise):
    """As disentanglement_lib goes about it, one column and one factor at a time."""
    table = np.zeros((codes.shape[1], len(factors)))
    for f in range(codes.shape[1]):
        bins = discretise(codes[:, f])
        for k, values in enumerate(factors.values()):
            table[f, k] = mutual_info_score(values[values >= 0], bins[values >= 0])
    return table


def zero_apart(column, bins=20):
    """0 is bin 0, the others by numpy's histogram of them."""
    out, fired = np.zeros(len(column), int), column != 0
    if fired.any():
        out[fired] = np.digitize(column[fired], np.histogram(column[fired], bins)[1][:-1])
    return out


def whole_range(column, bins=20):
    return np.digitize(column, np.histogram(column, bins)[1][:-1])


@pytest.fixture
def example(rng):
    """Signed sparse codes with a dead, a constant and a two-valued feature; factors with rows that have no value."""
    factors = {str(size): rng.integers(-1, size, 500) for size in (2, 3, 6)}
    codes = rng.standard_normal((500, 8)) * (rng.random((500, 8)) < 0.2) + 0.5 * (factors["3"] == 1)[:, None]
    codes *= rng.random((500, 8)) < 0.5
    codes[:, 0], codes[:, 1], codes[:, 2] = 0, 3.0, factors["2"] == 1
    codes[:, 3] += 9 * (codes[:, 3] != 0)  # where it fires, far from 0: the bins begin there
    return codes, factors


def test_information_is_that_of_the_dense_bins(example):
    codes, factors = example
    stored = sparse.csr_array(codes)
    stored.data[np.flatnonzero(stored.indices > 3)[5]] = 0  # stored, and yet it did not fire
    found = mutual_information(stored, factors)
    np.testing.assert_allclose(found, dense_information(stored.toarray(), factors, zero_apart), atol=1e-12)
    assert (found[:2] == 0).all()


def test_without_zeros_it_is_disentanglement_lib_s_histogram(rng):
    codes, factors = rng.standard_normal((400, 4)), {"a": rng.integers(0, 3, 400), "b": rng.integers(0, 2, 400)}
    codes[:, 1] += factors["a"]
    expected = dense_information(codes, factors, whole_range)
    np.testing.assert_allclose(mutual_information(sparse.csr_array(codes), factors), expected, atol=1e-12)


def test_with_zeros_faint_firing_is_not_silence():
    """A value fires at .01 where another feature value is 1: the histogram of the whole range does not see it."""
    values = np.arange(300) % 3
    codes = np.array([0, 0.01, 1])[values][:, None]
    assert mutual_information(sparse.csr_array(codes), {"a": values}).item() == pytest.approx(np.log(3))
    assert dense_information(codes, {"a": values}, whole_range).item() < 0.64


def test_mig_and_modularity_are_the_published_sums(example):
    codes, factors = example
    table = mutual_information(sparse.csr_array(codes), factors)[2:]
    entropy = [mutual_info_score(v[v >= 0], v[v >= 0]) for v in factors.values()]
    ranked = np.sort(table, axis=0)[::-1]
    square = table**2
    apart = (square.sum(1) - square.max(1)) / (square.max(1) * 2)
    np.testing.assert_allclose(entropies(factors), entropy)
    assert mig(table, entropies(factors)) == pytest.approx(np.mean((ranked[0] - ranked[1]) / entropy))
    assert modularity(table, np.zeros(3)) == pytest.approx(np.mean(1 - apart))


def independent(*sizes, times=10):
    grid = np.stack(np.meshgrid(*[np.arange(size) for size in sizes], indexing="ij"), -1).reshape(-1, len(sizes))
    return {str(k): np.tile(grid[:, k], times) for k in range(len(sizes))}


def test_one_feature_a_factor_is_one_in_both():
    factors = independent(2, 3, 4)
    table = mutual_information(sparse.csr_array(np.stack(list(factors.values()), 1)), factors)
    np.testing.assert_allclose(table, np.diag(np.log([2, 3, 4])), atol=1e-12)
    assert mig(table, entropies(factors)) == pytest.approx(1)
    assert modularity(table, np.zeros(3)) == pytest.approx(1)


def test_a_twin_takes_all_of_mig_and_nothing_of_modularity():
    factors = independent(2, 3, 4)
    codes = np.stack(list(factors.values()), 1)
    table = mutual_information(sparse.csr_array(np.hstack([codes, codes])), factors)
    assert mig(table, entropies(factors)) == 0
    assert modularity(table, np.zeros(3)) == pytest.approx(1)


def test_one_feature_a_value_has_no_gap_either():
    factors = independent(3, 3)
    codes = np.hstack([np.eye(3)[values] for values in factors.values()])
    table = mutual_information(sparse.csr_array(codes), factors)
    assert mig(table, entropies(factors)) == pytest.approx(0, abs=1e-12)
    assert modularity(table, np.zeros(2)) == pytest.approx(1)


def test_a_feature_of_two_factors_alike_loses_its_share():
    """Of K factors one other is as well said: 1 - 1 / (K - 1); the gap of the two it says is theirs in full."""
    factors = independent(2, 2, 2, 2)
    codes = 1 + factors["0"] + 2 * factors["1"]
    table = mutual_information(sparse.csr_array(np.stack([codes, 0 * codes], 1)), factors)
    assert modularity(table, np.zeros(4)) == pytest.approx(1 - 1 / 3)
    assert mig(table, entropies(factors)) == pytest.approx(1 / 2)


def test_modularity_is_over_the_features_that_say_enough():
    table = np.array([[0.5, 0.0], [0.0, 0.0], [0.01, 0.01]])
    assert modularity(table, np.array([0.02, 0.02])) == 1
    assert modularity(table, np.array([0.02, 0.005])) == 0.5
    assert np.isnan(modularity(table, np.array([0.5, 0.5])))


def test_an_accident_is_a_rare_one_and_does_not_hide_what_is_said(rng):
    """Noise passes less than once in ten thousand, though χ² only approximates it; a feature that knows passes."""
    factors = {"a": rng.integers(0, 4, 4000), "b": np.where(rng.random(4000) < 0.5, rng.integers(0, 2, 4000), -1)}
    noise = (0.05 + rng.random((4000, 1000))) * (rng.random((4000, 1000)) < 0.2)
    knows = (factors["a"] == 1) * (factors["b"] == 1) * rng.random(4000)
    found = mutual_information(sparse.csr_array(np.column_stack([noise, knows])), factors) > accident(factors)
    assert found[:-1].sum() == 0
    assert found[-1].all()
    np.testing.assert_allclose(accident(factors), chi2_of([60, 20]) / 2 / np.array([4000, (factors["b"] >= 0).sum()]))


def chi2_of(freedom):
    """Where the upper tail of χ² is one in a million, by bisection on the regularised gamma function."""
    return 2 * np.array([brentq(lambda x, a=a: gammaincc(a / 2, x) - 1e-6, 0, 500) for a in freedom])


def test_a_factor_with_one_value_or_none_is_left_out(example):
    codes, factors = sparse.csr_array(example[0]), example[1]
    more = {**factors, "one": np.zeros(500, int), "none": np.full(500, -1)}
    table, fewer = mutual_information(codes, more), mutual_information(codes, factors)
    assert np.isnan(table).all(0).tolist() == [False, False, False, True, True]
    assert mig(table, entropies(more)) == mig(fewer, entropies(factors))
    assert modularity(table, accident(more)) == modularity(fewer, accident(factors))
    assert np.isnan(mig(table[:1], entropies(more)))
    assert np.isnan(mig(table[:, 3:], np.zeros(2)))
    assert np.isnan(modularity(fewer[:, :1], np.zeros(1)))


def sap_of_all(codes, factors, train):
    """As published, every feature alone, but on standardised columns and by balanced accuracy."""
    gaps = []
    for values in factors.values():
        fit, asked, scores = train & (values >= 0), ~train & (values >= 0), []
        for column in (codes / np.where(codes[train].std(0) > 0, codes[train].std(0), 1)).T[:, :, None]:
            said = LinearSVC(C=0.01, class_weight="balanced").fit(column[fit], values[fit]).predict(column[asked])
            scores.append(balanced_accuracy_score(values[asked], said))
        gaps.append(np.diff(np.sort(scores))[-1])
    return np.mean(gaps)


@pytest.fixture
def sap_example(rng):
    """Twelve features: some tell a factor's value often, one tells two factors, one is dead, the others noise."""
    factors = {str(size): rng.integers(0, size, 600) for size in (2, 3, 5)}
    factors["5"][::4] = -1
    codes = rng.random((600, 12)) * (rng.random((600, 12)) < 0.15)
    codes[:, 0] += (factors["2"] == 1) * (rng.random(600) < 0.9)
    codes[:, 1] += (factors["2"] == 1) * (rng.random(600) < 0.6)
    codes[:, 2] += 2 * (factors["3"] == 2) + 1 * (factors["3"] == 1) * (rng.random(600) < 0.7)
    codes[:, 3] -= (factors["3"] == 0) * 1.0 + (factors["5"] == 4)
    codes[:, 4] = 0
    codes[:, 5] += (factors["5"] == 2) * (rng.random(600) < 0.8)
    return codes, factors, rng.random(600) < 0.5


def test_it_is_the_gap_that_all_features_give(sap_example):
    codes, factors, train = sap_example
    expected = sap_of_all(codes, factors, train)
    assert expected > 0.05
    assert sap(sparse.csr_array(codes), factors, train) == pytest.approx(expected)
    assert sap(sparse.csr_array(codes), factors, train, tried=12) == pytest.approx(expected)


def test_where_only_one_feature_tells_a_factor_fewer_tried_can_only_widen_the_gap(sap_example):
    codes, factors, train = sap_example
    codes = sparse.csr_array(codes[:, [0, *range(6, 12)]])
    gaps = [sap(codes, {"2": factors["2"]}, train, tried) for tried in range(2, 8)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] - gaps[-1] < 0.05


def test_units_do_not_matter(sap_example):
    codes, factors, train = sap_example
    small = sparse.csr_array(codes * 10.0 ** (np.arange(12) % 7 - 4))
    assert sap(small, factors, train) == pytest.approx(sap(sparse.csr_array(codes), factors, train))


@pytest.fixture
def perfect():
    """Three factors of two values in every combination, a feature each."""
    grid = np.stack(np.meshgrid(*[[0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
    codes = np.tile(grid, (20, 1))
    return codes, {str(k): codes[:, k] for k in range(3)}, np.arange(160) < 80


def test_one_feature_a_factor_has_the_gap_to_chance_and_a_twin_closes_it(perfect):
    codes, factors, train = perfect
    assert sap(sparse.csr_array(codes), factors, train) == 0.5
    assert sap(sparse.csr_array(np.hstack([codes, codes])), factors, train) == 0


def test_a_feature_of_two_factors_has_half_of_the_gap_of_one(perfect):
    """From a + b each of a and b is told to 3/4: a gap of 1/4 for two factors of three."""
    codes, factors, train = perfect
    both = np.stack([codes[:, 0] + codes[:, 1], 0 * codes[:, 0]], 1)
    assert sap(sparse.csr_array(both), factors, train) == pytest.approx(2 / 3 / 4)


def test_noise_has_a_small_gap(rng):
    factors = {str(size): rng.integers(0, size, 4000) for size in (2, 4)}
    codes = sparse.random_array((4000, 30), density=0.1, rng=rng, format="csr")
    assert sap(codes, factors, rng.random(4000) < 0.5) < 0.03


def test_a_factor_that_cannot_be_asked_is_left_out(perfect):
    codes, factors, train = perfect
    only_fitted = np.where(train, factors["0"], -1)
    assert sap(sparse.csr_array(codes), {**factors, "c": 0 * only_fitted, "d": only_fitted}, train) == 0.5
    assert np.isnan(sap(sparse.csr_array(codes), {"d": only_fitted}, train))
    assert np.isnan(sap(sparse.csr_array(codes[:, :1]), factors, train))


NAMES = ["dci_disentanglement", "dci_completeness", "dci_informativeness", "mig", "sap", "modularity"]


@pytest.fixture
def perfect_code(rng):
    """Four factors of two values, a feature each that fires at one of them."""
    factors = {name: rng.integers(0, 2, 1200) for name in "abcd"}
    codes = np.stack(list(factors.values()), 1) * (0.5 + rng.random((1200, 4)))
    return codes, factors, rng.random(1200) < 0.5


def test_a_perfect_code_is_perfect_and_its_chance_is_not(perfect_code, rng):
    codes, factors, train = perfect_code
    found = disentanglement(sparse.csr_array(codes), factors, train, rng, draws=3)
    assert list(found.scores) == list(found.chance) == NAMES
    expected = dict(zip(NAMES, (1, 1, 1, 1, 0.5, 1), strict=True))
    assert found.scores == pytest.approx(expected, abs=0.06)
    assert found.chance["dci_informativeness"] == pytest.approx(0.5, abs=0.05)
    assert found.chance["mig"] < 0.03
    assert found.chance["sap"] < 0.06
    assert max(found.chance["dci_disentanglement"], found.chance["modularity"]) < 0.9


def test_twins_take_the_gaps_and_leave_the_rest(perfect_code):
    codes, factors, train = perfect_code
    found = scores_of(sparse.csr_array(np.hstack([codes, codes])), factors, train, np.zeros(4))
    assert (found["mig"], found["sap"]) == (0, 0)
    assert min(found["dci_disentanglement"], found["dci_informativeness"], found["modularity"]) > 0.95


def test_noise_scores_chance(rng):
    factors = {str(size): rng.integers(0, size, 3000) for size in (2, 3, 4)}
    codes = sparse.random_array((3000, 80), density=0.05, rng=rng, format="csr")
    found = disentanglement(codes, factors, rng.random(3000) < 0.5, rng, draws=4)
    for name in NAMES[:-1]:
        assert found.scores[name] == pytest.approx(found.chance[name], abs=0.08), name
    assert np.isnan(found.scores["modularity"])


def test_features_that_know_nothing_do_not_dilute_modularity(perfect_code, rng):
    codes, factors, train = perfect_code
    noise = rng.random((1200, 60)) * (rng.random((1200, 60)) < 0.1)
    found = disentanglement(sparse.csr_array(np.hstack([codes, noise])), factors, train, rng)
    assert found.scores["modularity"] > 0.99
    assert 0.4 < found.chance["modularity"] < 0.9


def test_chance_permutes_all_factors_alike_and_is_the_mean_of_its_draws(perfect_code, rng, monkeypatch):
    codes, factors, train = perfect_code
    codes, seen = sparse.csr_array(codes), []

    def recorded(given, shuffled, mask, least):
        assert (least > 0).all() == (not seen)  # to be counted as informative is asked of the true factors only
        assert given is codes
        assert mask is train
        seen.append(np.stack(list(shuffled.values()), 1))
        return {"score": float(len(seen)) if len(seen) != 3 else np.nan}

    monkeypatch.setattr(module, "scores_of", recorded)
    found = disentanglement(codes, factors, train, rng, draws=3)
    assert (found.scores, found.chance) == ({"score": 1}, {"score": 3})  # of 2, NaN and 4
    whole, *drawn = [sorted(map(tuple, each)) for each in seen]
    assert all(each == whole for each in drawn)  # rows are moved as wholes
    assert not any((each == seen[0]).all() for each in seen[1:])
    assert not (seen[1] == seen[2]).all()
    seen.clear()
    assert np.isnan(disentanglement(codes, factors, train, rng, draws=0).chance["score"])


def test_the_same_generator_gives_the_same_chance(perfect_code):
    codes, factors, train = perfect_code
    one, other = (
        disentanglement(sparse.csr_array(codes), factors, train, np.random.default_rng(seed)).chance for seed in (1, 1)
    )
    assert one == other
