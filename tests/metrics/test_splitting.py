"""The L1 probe by the conditions of its optimum; split features on classes whose features are known."""

import numpy as np
from scipy import sparse

from unbraid.metrics.splitting import L1, l1_probe, rank_positive, split_features


def test_the_l1_probe_is_where_no_weight_can_improve(rng):
    """The gradient of the mean log loss is -.01·sign(w) where w is not 0, and within ±.01 where it is."""
    rows = rng.random((300, 20)) * (rng.random((300, 20)) < 0.5)
    known = np.stack([rows[:, 0] + 0.3 * rng.random(300) > 0.5, rows[:, 3] - rows[:, 4] > 0.2], 1)
    weights = l1_probe(sparse.csr_array(rows), known, 5000)
    for column in range(2):
        mine = known[:, column]
        weight = np.where(mine, 0.5 / mine.sum(), 0.5 / (~mine).sum())
        z = rows @ weights[:, column]
        middle = bias_of(z, mine, weight)
        slope = rows.T @ (weight * (1 / (1 + np.exp(-z - middle)) - mine))
        on = weights[:, column] != 0
        assert 0 < on.sum() < 20
        np.testing.assert_allclose(slope[on], -L1 * np.sign(weights[on, column]), atol=1e-4)
        assert (np.abs(slope[~on]) <= L1 + 1e-4).all()


def bias_of(z, mine, weight):
    """The bias at which the weighted errors cancel, by bisection."""
    low, middle, high = -10.0, 0.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        if (weight * (1 / (1 + np.exp(-z - middle)) - mine)).sum() > 0:
            high = middle
        else:
            low = middle
    return middle


def test_features_against_a_class_are_not_ranked_for_it(rng):
    known = rng.random(200) < 0.5
    rows = np.stack([1.0 * ~known, 0.7 * known, 0.0 * known], 1)
    assert rank_positive(sparse.csr_array(rows), known[:, None])[0].tolist() == [1, 2, 0]


def test_split_features_grow_while_the_f1_does(rng):
    """Each of three features covers a third of the class, without error; a fourth covers nothing new."""
    known = np.arange(300) < 90
    columns = np.stack([(np.arange(300) // 30 == third) & known for third in (0, 1, 2, 0)], 1).astype(float)
    assert split_features(columns, known) == 3
    assert split_features(columns[:, [0, 3, 1]], known) == 1
