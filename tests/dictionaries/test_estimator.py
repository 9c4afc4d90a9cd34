"""The scikit-learn face: its own checks, and that it does what a dictionary does."""

import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from unbraid import SparseAutoencoder, Superposition
from unbraid.dictionaries import ACTIVATIONS
from unbraid.errors import UserError


def test_scikit_learn_accepts_it():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(SparseAutoencoder(n_components=4, steps=5, batch=16), on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed <= {"check_do_not_raise_errors_in_init_or_set_params"}  # the tests' type checks raise in __init__
    assert len(results) > 30


@pytest.mark.parametrize("activation", ["relu", "topk"])
def test_it_recovers_planted_directions_and_reconstructs(activation: str):
    world = Superposition(dimensions=16, n_features=20, active=2.0, decay=1.0)
    x = world.batch(0, 4096).x.numpy()
    model = SparseAutoencoder(20, activation=activation, k=3, sparsity=0.05, steps=600, learning_rate=1e-2).fit(x)
    best = (world.directions.numpy() @ model.components_.T).max(1)
    chance = (world.directions.numpy() @ SparseAutoencoder(20, steps=1, learning_rate=1e-9).fit(x).components_.T).max(1)
    assert best.mean() > chance.mean() + 0.3
    codes = model.transform(x)
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1, atol=1e-5)
    assert ((codes - codes.min()) >= 0).all()
    assert 1 - ((model.inverse_transform(codes) - x) ** 2).sum() / ((x - x.mean(0)) ** 2).sum() > 0.7


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_any_kind_of_dictionary_fits(activation: str):
    x = np.random.default_rng(0).normal(size=(64, 6))
    model = SparseAutoencoder(5, activation=activation, k=2, steps=3, batch=8).fit(x)
    assert model.stack_.activation.to_dict()["kind"] == activation
    assert model.inverse_transform(model.transform(x)).shape == (64, 6)


def test_it_drops_into_a_pipeline():
    x = np.random.default_rng(0).normal(size=(64, 6))
    assert make_pipeline(StandardScaler(), SparseAutoencoder(5, steps=3, batch=8)).fit_transform(x).shape == (64, 5)


def test_bad_settings_get_one_sentence():
    with pytest.raises(UserError, match="SparseAutoencoder: d_sae is 0"):
        SparseAutoencoder(0).fit(np.ones((4, 2)))
