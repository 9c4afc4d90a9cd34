"""All scores at once: on a perfect code, on a twin of it, on noise, and what chance permutes."""

import numpy as np
import pytest
from scipy import sparse

from unbraid.metrics import disentanglement as module
from unbraid.metrics.disentanglement import disentanglement, scores_of

NAMES = ["dci_disentanglement", "dci_completeness", "dci_informativeness", "mig", "sap", "modularity"]


@pytest.fixture
def perfect(rng):
    """Four factors of two values, a feature each that fires at one of them."""
    factors = {name: rng.integers(0, 2, 1200) for name in "abcd"}
    codes = np.stack(list(factors.values()), 1) * (0.5 + rng.random((1200, 4)))
    return codes, factors, rng.random(1200) < 0.5


def test_a_perfect_code_is_perfect_and_its_chance_is_not(perfect, rng):
    codes, factors, train = perfect
    found = disentanglement(sparse.csr_array(codes), factors, train, rng, draws=3)
    assert list(found.scores) == list(found.chance) == NAMES
    expected = dict(zip(NAMES, (1, 1, 1, 1, 0.5, 1), strict=True))
    assert found.scores == pytest.approx(expected, abs=0.06)
    assert found.chance["dci_informativeness"] == pytest.approx(0.5, abs=0.05)
    assert found.chance["mig"] < 0.03
    assert found.chance["sap"] < 0.06
    assert max(found.chance["dci_disentanglement"], found.chance["modularity"]) < 0.9


def test_twins_take_the_gaps_and_leave_the_rest(perfect):
    codes, factors, train = perfect
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


def test_features_that_know_nothing_do_not_dilute_modularity(perfect, rng):
    codes, factors, train = perfect
    noise = rng.random((1200, 60)) * (rng.random((1200, 60)) < 0.1)
    found = disentanglement(sparse.csr_array(np.hstack([codes, noise])), factors, train, rng)
    assert found.scores["modularity"] > 0.99
    assert 0.4 < found.chance["modularity"] < 0.9


def test_chance_permutes_all_factors_alike_and_is_the_mean_of_its_draws(perfect, rng, monkeypatch):
    codes, factors, train = perfect
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


def test_the_same_generator_gives_the_same_chance(perfect):
    codes, factors, train = perfect
    one, other = (
        disentanglement(sparse.csr_array(codes), factors, train, np.random.default_rng(seed)).chance for seed in (1, 1)
    )
    assert one == other
