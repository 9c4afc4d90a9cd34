import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.metrics.sparsity import dead, density, l0


@pytest.fixture
def values(rng):
    values = rng.random((2, 40, 6)) * (rng.random((2, 40, 6)) < [0.9, 0.5, 0.2, 0.05, 0.0, 0.0])
    values[1, 7, 5] = 0.3
    return values


@pytest.fixture
def counts(values):
    return Codes.dense(torch.from_numpy(values)).counts()


def test_density_is_the_share_of_samples_in_which_a_feature_fires(values, counts):
    np.testing.assert_allclose(density(counts, 40).numpy(), (values != 0).mean(1))


def test_l0_is_the_mean_number_active(values, counts):
    np.testing.assert_allclose(l0(counts, 40).numpy(), (values != 0).sum(-1).mean(-1))


def test_dead_features_are_those_that_never_fired(values, counts):
    assert dead(counts).tolist() == [sum(not member[:, f].any() for f in range(6)) for member in values]
    assert dead(counts)[0] >= 2


def test_nothing_fires_in_a_dead_dictionary():
    none = torch.zeros(1, 5, dtype=torch.long)
    assert dead(none).tolist() == [5]
    assert l0(none, 10).tolist() == [0.0]
