"""A few features together, on codes made so that one, two or three of them are needed."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import matthews_corrcoef

from unbraid.metrics.association import associate, best
from unbraid.metrics.several import best_few, gather, union_phi


@pytest.fixture
def halves(rng):
    """A concept, on in a third of the rows; features 0 and 1 have a part of it each, the others are noise."""
    on = rng.random(2000) < 1 / 3
    first = rng.random(2000) < 0.5
    codes = np.zeros((2000, 6))
    codes[on & first, 0], codes[on & ~first, 1] = 1.0, 2.0
    codes[:, 2:] = rng.random((2000, 4)) * (rng.random((2000, 4)) < 0.1)
    return sparse.csr_array(codes), on[:, None], np.arange(2000) % 2 == 0


def test_two_halves_are_the_whole_where_neither_alone_is(halves):
    codes, concepts, fit = halves
    found = associate(codes, concepts, fit)
    assert best(found).phi[0] < 0.75
    assert best_few(codes, concepts, fit, found)[0] == 1


def test_it_is_never_chosen_for_less_than_the_best_alone_and_is_measured_on_other_rows(halves, rng):
    codes, _, fit = halves
    concepts = rng.random((2000, 3)) < 0.2
    found = associate(codes, concepts, fit)
    few = best_few(codes, concepts, fit, found)
    assert (np.abs(few) < 0.15).all(), "of what no feature knows, choosing makes nothing on other rows"


def test_what_is_not_judged_has_none(halves):
    codes, concepts, fit = halves
    rare = np.zeros_like(concepts)
    rare[:2] = True
    both = np.hstack([concepts, rare])
    found = best_few(codes, both, fit, associate(codes, both, fit))
    assert np.isnan(found).tolist() == [False, True]


def test_features_are_added_while_they_help_and_at_most_four(rng):
    on = np.arange(600) < 300
    said = np.stack([(np.arange(600) // 60) == part for part in range(5)])
    chosen = gather(sparse.csr_array(said.astype(np.float32)), on, np.zeros(600, bool))
    assert sorted(chosen) == sorted(set(chosen))
    assert len(chosen) == 4
    covered = said[chosen].any(0)
    assert union_phi(covered, on) == pytest.approx(matthews_corrcoef(on, covered))
    useless = sparse.csr_array((rng.random((3, 600)) < 0.5).astype(np.float32))
    assert gather(useless, on, on.copy()) == []
