import numpy as np
import pytest
import torch

from tests.dictionaries.mechanisms.hand_made import a_pass, a_stack
from unbraid.dictionaries.mechanisms import DynamicPairs, Signals


@pytest.fixture
def codes(rng):
    return np.maximum(rng.standard_normal((2, 30, 12)) - 1.0, 0)


def observed(mechanism, codes, steps):
    stack = a_stack(codes.shape[2], members=len(codes))
    memory, signals = mechanism.start(stack), []
    for _ in range(steps):
        signals.append(mechanism.signal(memory, stack)["pairs"].tolist())
        memory = mechanism.observe(a_pass(codes), memory, stack, Signals())
    return memory, signals


def test_corrected_counts_cosines_that_stand_out_among_pairs_that_fired_together(codes):
    memory, signals = observed(DynamicPairs(least=1), codes, 3)
    for m, f in enumerate(codes):
        unit = f / np.maximum(np.linalg.norm(f, axis=0), 1e-12)
        cosines = (unit.T @ unit)[np.triu_indices(12, 1)]
        together = cosines[cosines > 0]
        assert len(together) < len(cosines)
        thresholds = [0.5]
        for _ in range(3):
            thresholds.append(0.9 * thresholds[-1] + 0.1 * (together.mean() + 2 * together.std(ddof=1)))
        counts = [max(1, int((cosines > threshold).sum())) for threshold in thresholds]
        assert float(memory["threshold"][m]) == pytest.approx(thresholds[-1])
        assert [seen[m] for seen in signals] == [0, *counts[1:3]]


def test_published_counts_over_the_whole_matrix_of_sums_as_torch_does(codes):
    memory, _ = observed(DynamicPairs(least=1, form="published"), codes, 1)
    for m, f in enumerate(torch.from_numpy(codes)):
        sums = (f.T @ f).abs().fill_diagonal_(0)
        threshold = 0.9 * 0.5 + 0.1 * (sums.mean() + 2 * sums.std())
        assert float(memory["threshold"][m]) == pytest.approx(float(threshold))
        assert float(memory["pairs"][m]) == int((sums > threshold).sum()) // 2


def test_there_are_never_fewer_than_the_least(codes):
    assert observed(DynamicPairs(), np.zeros((1, 3, 4)), 2)[1] == [[0], [10]]
    assert observed(DynamicPairs(least=7, initial=9.0, momentum=1.0), codes, 2)[1] == [[0, 0], [7, 7]]
