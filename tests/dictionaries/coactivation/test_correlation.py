"""The mean correlation of the top pairs, against numpy on all pairs."""

import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries.coactivation import FEWEST_PAIRS, LEAST_SAMPLES, TOP_SHARE, correlation


def drawn(features: int, samples: int, share: float, seed: int = 0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    shared = rng.random((samples, features)) * (rng.random((samples, features)) < share)
    shared[:, 1] = shared[:, 0] + 0.1 * shared[:, 1]  # one pair that stands out
    return torch.from_numpy(shared.astype(np.float32))


def plainly(values: np.ndarray) -> float:
    """Of features that fired often enough; those that never fire together would count as 0, and here all do."""
    kept = values[:, (values != 0).sum(0) >= LEAST_SAMPLES].astype(np.float64)
    table = np.abs(np.corrcoef(kept.T))[np.triu_indices(kept.shape[1], 1)]
    number = max(int(TOP_SHARE * len(table)), FEWEST_PAIRS)
    return float(np.sort(table)[-number:].mean())


@pytest.mark.parametrize(("features", "share"), [(12, 0.3), (200, 0.1), (200, 0.6)])
def test_it_is_the_mean_of_the_largest_correlations(features: int, share: float):
    values = drawn(features, 400, share)
    values[9:, -1] = 0  # fires too seldom to be judged
    lists = torch.arange(features).expand(1, 400, features)
    for codes in (Codes.dense(values[None]), Codes(lists, values[None], features)):
        assert correlation(codes).item() == pytest.approx(plainly(values.numpy()), abs=1e-5)


def test_members_are_judged_apart_and_no_pair_is_no_correlation():
    one, other = drawn(30, 200, 0.3), torch.zeros(200, 30)
    other[:, 3] = 1 + torch.arange(200) % 7
    found = correlation(Codes.dense(torch.stack([one, other])))
    assert found[0].item() == pytest.approx(plainly(one.numpy()), abs=1e-5)
    assert found[1].item() == 0
