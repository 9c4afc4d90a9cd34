"""PCA, ICA and NMF against numpy, scikit-learn and mixtures whose parts are known."""

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn import decomposition
from sklearn.exceptions import ConvergenceWarning

from unbraid.dictionaries.baselines import Ica, Nmf, Pca
from unbraid.dictionaries.baselines.baseline import counted
from unbraid.errors import UserError


def tensor(rows):
    return torch.from_numpy(np.asarray(rows, dtype=np.float32))


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def mixture(rng):
    """Six skewed independent sources, their unit directions (not orthogonal), and the rows they make."""
    directions = unit(rng.standard_normal((6, 8)))
    strengths = rng.uniform(0, 1, (4000, 6)) * (rng.uniform(0, 1, (4000, 6)) < 0.15)
    return directions, strengths, strengths @ directions


@pytest.mark.parametrize("samples", [5, 300])
def test_pca_is_numpys_svd_of_the_centred_rows(rng, samples):
    rows = rng.standard_normal((samples, 7)) * np.arange(1, 8) + 3
    fitted = Pca(n_components=4).fit(tensor(rows))
    axes = np.linalg.svd(rows - rows.mean(0))[2][:4]
    axes *= np.sign(axes[np.arange(4), np.abs(axes).argmax(1)])[:, None]
    np.testing.assert_allclose(fitted.components_, axes, atol=1e-4)
    np.testing.assert_allclose(fitted.transform(rows), (rows - rows.mean(0)) @ axes.T, atol=1e-3)
    expected = decomposition.PCA(4).fit(rows)
    np.testing.assert_allclose(fitted.transform(rows), expected.transform(rows), atol=1e-3)
    expected = expected.inverse_transform(expected.transform(rows))
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(rows)), expected, atol=1e-3)


def test_ica_recovers_independent_sources_signs_and_strengths(mixture):
    directions, strengths, rows = mixture
    fitted = Ica(n_components=6).fit(tensor(rows))
    cosine = directions @ fitted.components_.T
    true, found = linear_sum_assignment(cosine, maximize=True)
    assert cosine[true, found].min() > 0.98  # each to its own, and none upside down
    codes = fitted.transform(rows)[:, found]
    together = [np.corrcoef(strengths[:, i], codes[:, i])[0, 1] for i in range(6)]
    assert min(together) > 0.98
    np.testing.assert_allclose(codes.std(0), strengths.std(0), rtol=0.05)
    assert fitted.unconverged == 0


def test_the_published_form_of_ica_is_scikit_learns_unmixing_matrix(mixture):
    _, _, rows = mixture
    baseline = Ica(n_components=6, form="published", seed=4)
    found = baseline.fit(tensor(rows))
    wide = tensor(rows).double().numpy()
    solver = {"whiten": "unit-variance", "whiten_solver": "svd"}
    expected = decomposition.FastICA(6, **solver, random_state=baseline.random_state).fit(wide)
    np.testing.assert_allclose(found.components_, unit(expected.components_), atol=1e-5)
    np.testing.assert_allclose(found.inverse_transform(found.transform(rows)), rows, atol=1e-4)
    corrected = Ica(n_components=6, seed=4).fit(tensor(rows))
    scale = np.linalg.norm(expected.mixing_, axis=0)
    np.testing.assert_allclose(np.abs(corrected.transform(rows)), np.abs(expected.transform(wide)) * scale, atol=1e-4)


def test_ica_that_did_not_converge_is_counted_and_not_shown(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Ica(n_components=5, iterations=1).fit(tensor(rng.laplace(size=(50, 5)))).unconverged == 1


def test_other_warnings_are_passed_on():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with counted() as said:
            warnings.warn("did not converge", ConvergenceWarning, stacklevel=1)
            warnings.warn("something else", UserWarning, stacklevel=1)
    assert said == ["did not converge"]
    assert [str(warning.message) for warning in shown] == ["something else"]


@pytest.mark.parametrize("kind", [Pca, Ica])
def test_directions_in_which_nothing_varies_are_not_found(kind, rng):
    flat = rng.laplace(size=(400, 3)) @ rng.standard_normal((3, 8))
    fitted = kind(n_components=8).fit(tensor(flat))
    assert fitted.features == 3
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(flat)), flat, atol=1e-4)


@pytest.mark.parametrize("kind", [Pca, Ica])
def test_rows_that_are_all_the_same_have_no_factors(kind):
    with pytest.raises(UserError, match="all 6 rows are the same, so nothing varies; accepted: at least two different"):
        kind().fit(torch.ones(6, 4))


def test_nmf_is_scikit_learns_on_positive_and_negative_parts(rng):
    rows = rng.standard_normal((80, 5))
    baseline = Nmf(n_components=6, iterations=2000, seed=2)
    fitted = baseline.fit(tensor(rows))
    halves = np.concatenate([rows.clip(0), (-rows).clip(0)], axis=1).astype(np.float32)
    settings = {"init": "nndsvda", "max_iter": 2000, "random_state": baseline.random_state}
    expected = decomposition.NMF(6, **settings).fit(halves)
    folded = expected.components_[:, :5] - expected.components_[:, 5:]
    np.testing.assert_allclose(fitted.components_, unit(folded), atol=1e-5)
    codes = decomposition.non_negative_factorization(
        halves.astype(float), None, expected.components_.astype(float), init="custom", update_H=False,
        n_components=6, tol=1e-12, max_iter=20000,
    )[0] * np.linalg.norm(folded, axis=1)  # fmt: skip
    np.testing.assert_allclose(fitted.transform(rows), codes, atol=1e-4)


def test_there_are_at_most_two_parts_a_dimension(rng):
    assert Nmf(n_components=50, iterations=2000).fit(tensor(rng.standard_normal((30, 2)))).features == 4


def test_nmf_finds_signed_directions_that_are_only_ever_added(rng):
    """Directions with disjoint places, so that nothing cancels and the split loses nothing."""
    truth = np.zeros((3, 12))
    for i in range(3):
        truth[i, 4 * i : 4 * i + 4] = rng.choice([-1, 1], 4) * rng.uniform(0.5, 1, 4)
    truth = unit(truth)
    strengths = rng.uniform(0.2, 1, (200, 3)) * (rng.uniform(size=(200, 3)) < 0.5)
    fitted = Nmf(n_components=3, iterations=2000).fit(tensor(strengths @ truth))
    cosine = truth @ fitted.components_.T
    np.testing.assert_allclose(cosine.max(1), 1, atol=1e-3)
    np.testing.assert_allclose(fitted.transform(strengths @ truth)[:, cosine.argmax(1)], strengths, atol=0.02)
    assert (fitted.transform(rng.standard_normal((50, 12))) >= 0).all()
