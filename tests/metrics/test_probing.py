"""Sparse probing on planted classes whose answer is known, and against a naive implementation.
The probe against scikit-learn's, and against concepts that a direction does and does not tell.
"""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from unbraid.metrics.probing import (
    CHANCE,
    FULL,
    KS,
    Accuracy,
    Labelled,
    average,
    fit_probe,
    pool,
    probe,
    probe_class,
    probe_concepts,
    rank,
    standardise,
)


def planted(rng, texts=600, classes=3, width=60):
    """Feature c fires for class c alone; 10 + c in 80 % of class c and 20 % of the rest; others at random."""
    labels = np.arange(texts) % classes
    rows = (rng.random((texts, width)) < 0.3) * rng.random((texts, width))
    for one in range(classes):
        rows[:, one] = 20 * (labels == one)
        agrees = rng.random(texts) < 0.8
        rows[:, 10 + one] = np.where(agrees, labels == one, labels != one)
    return Labelled(sparse.csr_array(rows), labels, rng.random(texts) < 0.7)


def without(data, columns):
    rows = data.rows.toarray()
    rows[:, columns] = 0
    return Labelled(sparse.csr_array(rows), data.classes, data.train)


def test_a_feature_of_its_own_for_each_class_is_enough(rng):
    found = probe(planted(rng), rng)
    assert list(found) == [*map(str, KS), FULL]
    assert found["1"].value == 1
    assert found["1"].error == 0


def test_a_feature_that_is_right_four_times_in_five_scores_four_fifths(rng):
    data = without(planted(rng, texts=6000), [0, 1, 2])
    found = probe(data, rng)["1"]
    assert found.value == pytest.approx(0.8, abs=4 * found.error)
    assert 0.005 < found.error < 0.02


def test_without_a_feature_for_the_class_the_score_is_chance(rng):
    data = without(planted(rng, texts=6000), [0, 1, 2, 10, 11, 12])
    for found in probe(data, rng, (1, 5)).values():
        assert found.value == pytest.approx(CHANCE, abs=4 * found.error)


def test_two_classes_are_one_question_with_the_error_of_one(rng):
    """2,000 test texts: √(p(1-p)/2000), and not that over √2 as from 4,000."""
    data = without(planted(rng, texts=4000, classes=2), [0, 1])
    found = probe(Labelled(data.rows, data.classes, np.arange(4000) < 2000), rng, (1,))["1"]
    assert found.value == pytest.approx(0.8, abs=4 * found.error)
    assert found.error == pytest.approx(np.sqrt(found.value * (1 - found.value) / 2000))


def test_a_class_that_is_most_of_the_texts_is_no_head_start(rng):
    """Nine of ten texts are of one class: without balance the constant answer would score .9."""
    labels = (rng.random(4000) < 0.9).astype(int)
    data = Labelled(rng.standard_normal((4000, 5)), labels, np.arange(4000) < 2000)
    found = probe(data, rng, (1,))["1"]
    assert found.value == pytest.approx(CHANCE, abs=4 * found.error)


def naive_logistic(rows, known, asked_rows):
    """The same penalised likelihood, ½|w|² + Σ log(1 + exp(-y·z)), by a general minimiser."""
    sign = np.where(known, 1.0, -1.0)

    def cost(parameters):
        z = rows @ parameters[:-1] + parameters[-1]
        return 0.5 * (parameters[:-1] ** 2).sum() + np.logaddexp(0, -sign * z).sum()

    best = minimize(cost, np.zeros(rows.shape[1] + 1), method="BFGS", options={"gtol": 1e-6}).x
    return asked_rows @ best[:-1] + best[-1] > 0


def naive_probe(rows, labels, train, one, k):
    """Loops over features, no sparse arrays; for two classes of equal size, where there is nothing to draw."""
    positive = labels == one
    apart = [abs(rows[train & positive, j].mean() - rows[train & ~positive, j].mean()) for j in range(rows.shape[1])]
    chosen = sorted(range(rows.shape[1]), key=lambda j: -apart[j])[:k]
    answers = naive_logistic(rows[train][:, chosen], positive[train], rows[~train][:, chosen])
    return (answers == positive[~train]).mean()


@pytest.mark.parametrize("k", [1, 2, 5])
def test_it_agrees_with_a_naive_implementation(rng, k):
    labels = np.tile([0, 1], 100)
    rows = rng.random((200, 12)) * (rng.random((200, 12)) < 0.5)
    rows += labels[:, None] * rng.random(12) * 0.4
    data = Labelled(sparse.csr_array(rows), labels, np.arange(200) < 120)
    found = probe_class(data, 1, rng, (k,))[str(k)].value
    assert found == pytest.approx(naive_probe(rows, labels, data.train, 1, k))
    dense = probe_class(Labelled(rows, labels, data.train), 1, rng, (k,))[str(k)].value
    assert dense == found


def test_features_are_ranked_by_how_far_apart_the_means_are():
    rows = np.array([[0.0, 1.0, 5.0], [0.0, 2.0, 5.0], [3.0, 0.0, 5.0], [4.0, 0.0, 5.0]])
    positive = np.array([True, True, False, False])
    assert rank(rows, positive).tolist() == [0, 1, 2]
    assert rank(sparse.csr_array(rows), positive).tolist() == [0, 1, 2]


def test_test_texts_choose_nothing(rng):
    """Test texts in which other features tell the classes leave the choice as it was."""
    data = planted(rng)
    rows = data.rows.toarray()
    rows[~data.train, 5] = 100 * (data.classes[~data.train] == 0)
    rows[~data.train, 0] = 0
    found = probe_class(Labelled(rows, data.classes, data.train), 0, rng, (1,))
    assert found["1"].value == pytest.approx(CHANCE)


def test_small_classes_are_not_probed(rng):
    labels = np.r_[np.zeros(100, int), np.ones(100, int), np.full(5, 2)]
    data = Labelled(rng.standard_normal((205, 4)), labels, np.arange(205) % 2 == 0)
    assert probe_class(data, 2, rng, (1,)) == {}
    assert set(probe(data, rng, (1, 50))) == {"1", FULL}


def test_pooling_is_the_mean_over_the_tokens_of_a_text(rng):
    tokens, width = 40, 9
    dense = rng.random((tokens, width)) * (rng.random((tokens, width)) < 0.3)
    text = rng.integers(0, 6, tokens)
    text[text == 4] = 3
    features = np.broadcast_to(np.arange(width), dense.shape)
    order = np.argsort(rng.random(dense.shape), axis=1)
    features, values = np.take_along_axis(features, order, 1), np.take_along_axis(dense, order, 1)
    expected = np.zeros((6, width))
    for one in set(text.tolist()):
        expected[one] = dense[text == one].mean(0)
    np.testing.assert_allclose(pool(features, values, text, 6, width).toarray(), expected, atol=1e-12)


def test_unused_slots_may_repeat_a_feature():
    found = pool(np.zeros((2, 3), int), np.array([[2.0, 0, 0], [0, 0, 0]]), np.array([0, 0]), 1, 2)
    assert found.toarray().tolist() == [[1.0, 0.0]]


def test_the_mean_over_classes_and_its_error():
    parts = [{"1": Accuracy(0.6, 0.03)}, {"1": Accuracy(0.8, 0.04), "2": Accuracy(1.0, 0.0)}]
    found = average(parts)
    assert found["1"].value == pytest.approx(0.7)
    assert found["1"].error == pytest.approx(0.025)
    assert found["2"].value == 1
    assert np.isnan(Accuracy.mean([]).value)


def test_the_error_is_that_of_a_share():
    """Three right of four: √(¾·¼/4)."""
    found = Accuracy.of(np.array([True, True, True, False]))
    assert (found.value, found.error) == (0.75, pytest.approx(np.sqrt(3) / 8))


def test_weights_are_scikit_learns(rng):
    x = rng.standard_normal((300, 7)) * np.arange(1, 8) + 3
    known = x @ rng.standard_normal(7) + 4 * rng.standard_normal(300) > 12
    rows = standardise(x, np.ones(300, bool))
    theirs = LogisticRegression(C=1, tol=1e-10, max_iter=10_000).fit(rows[:, :-1], known)
    found = fit_probe(rows, known)
    np.testing.assert_allclose(found[:-1], np.ravel(theirs.coef_), atol=1e-4)
    assert found[-1] == pytest.approx(theirs.intercept_.item(), abs=1e-4)


def test_a_direction_is_found_a_ring_is_not_and_chance_is_0(rng):
    x = rng.standard_normal((2000, 5))
    fit = np.arange(2000) % 2 == 0
    concepts = np.stack([x[:, 0] - x[:, 1] > 1.5, (x**2).sum(1) > 6, rng.random(2000) < 0.2], 1)
    found = probe_concepts(x, concepts, fit)
    assert found.features.tolist() == [0, 1, 2]
    assert found.phi[0] > 0.95
    assert np.abs(found.phi[1:]).max() < 0.2
    assert found.mean_phi() == pytest.approx(found.phi.mean())


def test_thresholds_are_for_phi_and_from_the_rows_fitted(rng):
    """Of a rare concept and one direction, φ on the other half is that of the best cut of x on the first."""
    x = rng.standard_normal((1000, 1))
    concept = x[:, 0] + rng.standard_normal(1000) > 2.5
    fit = np.arange(1000) < 500
    scores = [(matthews_corrcoef(concept[fit], x[fit, 0] >= cut), cut) for cut in np.sort(x[fit, 0])]
    most = max(score for score, _ in scores)
    cut = min(cut for score, cut in scores if score == most)
    below = x[fit][x[fit] < cut].max()
    expected = matthews_corrcoef(concept[~fit], x[~fit, 0] > (cut + below) / 2)
    assert probe_concepts(x, concept[:, None], fit).phi.item() == pytest.approx(expected)


def test_unjudged_concepts_constant_columns_and_separable_classes(rng):
    x = np.column_stack([rng.standard_normal(200), np.full(200, 3.0)]).astype(np.float32)
    concepts = np.stack([x[:, 0] > 0, np.zeros(200, bool), np.ones(200, bool)], 1)
    found = probe_concepts(x, concepts, np.arange(200) < 100)
    assert found.phi[0] > 0.9
    assert np.isnan(found.phi[1:]).all()


def test_the_rows_held_out_are_not_fitted(rng):
    """With 60 directions for 200 rows a probe tells the rows it has seen by heart, and those it has not by chance."""
    x, concepts = rng.standard_normal((200, 60)), rng.random((200, 8)) < 0.4
    assert abs(probe_concepts(x, concepts, np.arange(200) % 2 == 0).mean_phi()) < 0.1


def test_scale_and_origin_do_not_matter(rng):
    x = rng.standard_normal((400, 6))
    concepts = np.stack([x[:, 0] + rng.standard_normal(400) > 1, x[:, 1] > 1], 1)
    fit = np.arange(400) % 2 == 0
    moved = probe_concepts(x * 10.0 ** np.arange(-4, 2) + 5, concepts, fit)
    np.testing.assert_allclose(moved.phi, probe_concepts(x, concepts, fit).phi, atol=1e-6)
    assert moved.phi[1] > 0.9
