"""Independent firing as published: the seed's figures, and the exact law of the number active."""

import numpy as np
import pytest
from scipy import stats

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.worlds import Superposition

PUBLISHED = {"kind": "independent", "form": "published"}


def theory(features=512, decay=0.99, active=5.0):
    return np.array([decay**i * active / features for i in range(features)])


def test_the_default_is_the_corrected_form():
    assert Superposition().firing.to_dict() == {"kind": "independent", "form": "corrected"}


def test_the_published_probabilities_are_never_rescaled():
    world = Superposition(firing=PUBLISHED)
    np.testing.assert_allclose(world.probabilities.numpy(), theory(), rtol=1e-12)
    assert float(world.probabilities.sum()) == pytest.approx(0.971, abs=5e-4)


def test_the_published_world_has_the_seeds_active_and_empty_samples():
    """Seed 002: .971 active and 37.8 % of the samples empty, here within exact bounds."""
    samples, p = 40_000, theory()
    assert np.prod(1 - p) == pytest.approx(0.378, abs=5e-4)
    active = Superposition(firing=PUBLISHED).batch(0, samples).truth.l0()[0].numpy()
    low, high = stats.binom.interval(1 - 1e-4, samples, np.prod(1 - p))
    assert low <= (active == 0).sum() <= high
    assert abs(active.mean() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum() / samples)


@pytest.mark.parametrize(("strength", "figure"), [("uniform", 0.001264), ("product", 0.000421)])
def test_the_published_error_of_answering_zero(strength, figure):
    """Seed 002's figures, which are active · E[strength²] / dimensions."""
    squares = Superposition(firing=PUBLISHED, strength=strength).batch(0, 40_000).x.double().square().mean(1).numpy()
    assert abs(squares.mean() - figure) < 4 * squares.std() / np.sqrt(squares.size)
    assert 4 * squares.std() / np.sqrt(squares.size) < 0.04 * figure


def test_the_published_form_has_a_limit_of_its_own():
    """As p_0 = active / n, up to n may be asked for, where the corrected form stops at Σ decay^i."""
    settings = {"n_features": 20, "decay": 0.5, "firing": PUBLISHED}
    assert Superposition(active=19.0, **settings).probabilities.max() == pytest.approx(0.95)
    with pytest.raises(UserError, match="accepted: active below 20"):
        check(Superposition, {"active": 20.0, **settings}, "here")


def test_directions_do_not_depend_on_the_rule():
    rules = [PUBLISHED, {"kind": "correlated"}, {"kind": "correlated", "form": "published"}, {"kind": "hierarchy"}]
    for rule in rules:
        assert (Superposition(seed=3, firing=rule).directions == Superposition(seed=3).directions).all()


def test_nobody_has_a_parent():
    assert (Superposition(n_features=20, active=2.0).parents == -1).all()
