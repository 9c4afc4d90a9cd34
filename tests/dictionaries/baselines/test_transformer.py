"""Any baseline inside scikit-learn: its own checks, and a pipeline."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from unbraid.dictionaries.baselines import Ica, KMeans, KMedoids, Nmf, Pca, Random
from unbraid.dictionaries.estimator import BaselineTransformer

KINDS = [KMeans, KMedoids, Pca, Ica, Nmf, Random]


@pytest.mark.parametrize("kind", [KMeans, Pca])
def test_scikit_learn_accepts_it(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(BaselineTransformer(kind(n_components=3)), on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    before = {"check_do_not_raise_errors_in_init_or_set_params"}  # where the tests' type checks raise first
    assert failed <= before | {"check_estimator_sparse_array", "check_estimator_sparse_matrix"}
    assert len(results) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_it_drops_into_a_pipeline(kind, rng):
    x = rng.standard_normal((64, 6))
    pipeline = make_pipeline(StandardScaler(), BaselineTransformer(kind(n_components=5)))
    codes = clone(pipeline).fit(x).transform(x)
    assert codes.shape == (64, 5)
    assert np.array_equal(codes, pipeline.fit_transform(x))
    assert pipeline[-1].components_.shape == (5, 6)
    assert pipeline.inverse_transform(codes).shape == x.shape
    assert list(pipeline.get_feature_names_out()) == [f"baselinetransformer{i}" for i in range(5)]


def test_without_a_baseline_it_is_pca(rng):
    x = rng.standard_normal((64, 6))
    assert np.array_equal(BaselineTransformer().fit(x).components_, BaselineTransformer(Pca()).fit(x).components_)
