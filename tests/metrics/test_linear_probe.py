"""The probe against scikit-learn's, and against concepts that a direction does and does not tell."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef

from unbraid.metrics.linear_probe import fit_probe, probe_concepts, standardise


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
    assert found.recovery() == pytest.approx(found.phi.mean())


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
    assert abs(probe_concepts(x, concepts, np.arange(200) % 2 == 0).recovery()) < 0.1


def test_scale_and_origin_do_not_matter(rng):
    x = rng.standard_normal((400, 6))
    concepts = np.stack([x[:, 0] + rng.standard_normal(400) > 1, x[:, 1] > 1], 1)
    fit = np.arange(400) % 2 == 0
    moved = probe_concepts(x * 10.0 ** np.arange(-4, 2) + 5, concepts, fit)
    np.testing.assert_allclose(moved.phi, probe_concepts(x, concepts, fit).phi, atol=1e-6)
    assert moved.phi[1] > 0.9
