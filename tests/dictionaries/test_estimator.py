"""The scikit-learn face: its own checks, and that it does what a dictionary does."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from unbraid import Matryoshka, SparseAutoencoder, Sparsity, Superposition
from unbraid.dictionaries import ACTIVATIONS
from unbraid.errors import UserError

CHECKS = 46
"""Of scikit-learn 1.9; one more asks for array API input, where SCIPY_ARRAY_API is set."""


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_scikit_learn_accepts_it(activation):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SparseAutoencoder(n_components=4, activation=activation, steps=3, batch=16)
        results = check_estimator(model, on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed <= {"check_do_not_raise_errors_in_init_or_set_params"}  # the tests' type checks raise in __init__
    assert sum(result["status"] == "passed" for result in results) + len(failed) >= CHECKS


def planted(dimensions=32, n_features=48, rows=8192):
    world = Superposition(dimensions=dimensions, n_features=n_features, active=3.0, decay=1.0)
    return world, world.batch(0, rows).x.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_each_rule_at_its_defaults_recovers_the_planted_example_of_the_docs(activation):
    world = Superposition(dimensions=64, n_features=128, active=3)
    x = world.batch(0, 8192).x.numpy()
    model = SparseAutoencoder(128, activation=activation).fit(x)
    assert (world.directions.numpy() @ model.components_.T).max(1).mean() >= 0.9
    assert 2 <= (model.transform(x) != 0).sum(1).mean() <= 4.4


def test_gated_which_was_poor_at_its_defaults_is_not():
    world, x = planted()
    model = SparseAutoencoder(48, activation="gated", steps=600).fit(x)
    assert (world.directions.numpy() @ model.components_.T).max(1).mean() >= 0.9


@pytest.mark.parametrize("activation", ["relu", "gated"])
def test_a_target_means_the_same_for_every_rule(activation):
    _, x = planted(16, 24, 4096)
    model = SparseAutoencoder(24, activation=activation, target_l0=3, steps=400).fit(x)
    assert (model.transform(x) != 0).sum(1).mean() == pytest.approx(3, abs=0.3)


def test_top_k_fires_at_most_as_often_and_k_is_the_same_by_its_own_name():
    _, x = planted(16, 24, 256)
    settings = {"n_components": 24, "activation": "topk", "steps": 5}
    codes = [SparseAutoencoder(**settings, **k).fit_transform(x) for k in ({"target_l0": 3}, {"k": 3}, {"k": 99})]
    assert (codes[0] != 0).sum(1).max() == 3
    np.testing.assert_array_equal(codes[0], codes[1])
    assert (codes[2] != 0).sum(1).max() > 3  # as many as there are components, at most


def test_a_fixed_weight_takes_the_place_of_the_target():
    _, x = planted(16, 24, 512)
    light, heavy = (SparseAutoencoder(24, sparsity=w, steps=150).fit_transform(x) for w in (0.01, 0.5))
    assert (light != 0).sum() > 2 * (heavy != 0).sum()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pre_bias", [True, False])
def test_it_does_not_depend_on_the_scale_of_x(activation, pre_bias):
    _, x = planted(8, 12, 256)
    settings = {"activation": activation, "target_l0": 2, "pre_bias": pre_bias, "steps": 25, "batch": 64}
    one, small, large = (SparseAutoencoder(12, **settings).fit(x * np.float32(s)) for s in (1, 0.01, 100))
    for scale, other in ((0.01, small), (100, large)):
        np.testing.assert_allclose(other.components_, one.components_, atol=2e-3)
        l0 = [(m.transform(x * np.float32(s)) != 0).sum(1).mean() for m, s in ((one, 1), (other, scale))]
        assert l0[1] == pytest.approx(l0[0], abs=0.1)


def test_score_is_the_share_of_variance_explained():
    x = np.random.default_rng(0).normal(3, size=(300, 6)) * 50
    model = SparseAutoencoder(12, target_l0=6, steps=200).fit(x)
    assert model.score(x) == pytest.approx(
        r2_score(x, model.inverse_transform(model.transform(x)), multioutput="variance_weighted"), abs=1e-5
    )
    assert model.score(x) > 0.5
    assert model.score(csr_array(x)) == pytest.approx(model.score(x))


def test_sparse_rows_and_codes_are_as_dense_ones():
    x = np.random.default_rng(0).normal(size=(64, 6)) * (np.random.default_rng(1).random((64, 6)) > 0.5)
    model = SparseAutoencoder(5, steps=5, batch=8).fit(x)
    of_sparse = SparseAutoencoder(5, steps=5, batch=8, sparse_output=True).fit(csr_array(x))
    np.testing.assert_array_equal(of_sparse.components_, model.components_)
    codes = of_sparse.transform(csr_array(x))
    assert issparse(codes)
    np.testing.assert_allclose(codes.toarray(), model.transform(x), atol=1e-6)
    np.testing.assert_allclose(
        of_sparse.inverse_transform(codes), model.inverse_transform(model.transform(x)), atol=1e-5
    )


def test_codes_are_made_in_batches(monkeypatch):
    x = np.random.default_rng(0).normal(size=(64, 6))
    whole = SparseAutoencoder(5, steps=5, batch=8).fit(x)
    expected = whole.transform(x), whole.inverse_transform(whole.transform(x)), whole.score(x)
    monkeypatch.setattr("unbraid.dictionaries.estimator.ROWS", 7)
    np.testing.assert_allclose(whole.transform(x), expected[0], atol=1e-6)
    np.testing.assert_allclose(whole.inverse_transform(expected[0]), expected[1], atol=1e-6)
    assert whole.score(x) == pytest.approx(expected[2])


def test_partial_fit_goes_on_batch_by_batch():
    _, x = planted(16, 24, 1024)
    model = SparseAutoencoder(24, activation="topk", target_l0=3, batch=64)
    assert model.partial_fit(x[:128]).n_iter_ == 2
    first = model.score(x)
    for _ in range(10):
        model.partial_fit(x)
    assert model.n_iter_ == 162
    assert model.score(x) > first + 0.1
    assert model.stack_.history["step"].max() == 162
    again = clone(model).fit(x)
    assert again.n_iter_ == 1000
    assert again.partial_fit(x[:10]).n_iter_ == 1001


def test_partial_fit_after_a_copy_goes_on_alike():
    _, x = planted(16, 24, 256)
    model = SparseAutoencoder(24, steps=5, batch=64).fit(x)
    restored = pickle.loads(pickle.dumps(model))
    before = model.components_.copy()
    np.testing.assert_array_equal(model.partial_fit(x).components_, restored.partial_fit(x).components_)
    assert not np.array_equal(model.components_, before)


def test_mechanisms_take_part_in_training():
    _, x = planted(16, 24, 512)
    settings = {"n_components": 24, "activation": "topk", "target_l0": 3, "steps": 20}
    plain = SparseAutoencoder(**settings).fit(x)
    nested = SparseAutoencoder(**settings, mechanisms=[Matryoshka(prefixes=[0.25])]).fit(x)
    assert not np.array_equal(plain.components_, nested.components_)
    assert "matryoshka" in nested.stack_.history.columns
    with pytest.raises(UserError, match="two mechanisms of one kind"):
        SparseAutoencoder(mechanisms=[Sparsity(), Sparsity()]).fit(x)


def test_its_output_may_be_a_data_frame():
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(64, 3)), columns=["a", "b", "c"])
    model = SparseAutoencoder(2, steps=3, batch=8).set_output(transform="pandas")
    codes = model.fit_transform(x)
    assert list(codes.columns) == ["sparseautoencoder0", "sparseautoencoder1"]
    assert list(model.feature_names_in_) == ["a", "b", "c"]


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
