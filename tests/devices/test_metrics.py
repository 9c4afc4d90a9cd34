"""Metrics that are made of torch alone run where their tensors are, and say what they say on the CPU."""

import pytest
import torch

from unbraid.codes import Codes
from unbraid.metrics import attention, circuits, firing, heads, recovery

M, N, F, D, B = 2, 5, 7, 6, 9


def rng():
    return torch.Generator().manual_seed(0)


def rows(*shape):
    return torch.nn.functional.normalize(torch.randn(*shape, generator=rng()), dim=-1)


CODES = torch.randn(M, B, F, generator=rng()).relu()
COSINE = torch.rand(M, N, F, generator=rng())
PATTERN = torch.rand(M, 3, 2, 5, 5, generator=rng()).tril().add(1e-3).tril()
MASK = torch.ones(3, 5, dtype=torch.bool)
KEYS = attention.allowed(MASK, True)
HEADS = torch.randn(M, 4, 8, 3, generator=rng())
CASES = {
    "cosines": (recovery.cosines, rows(N, D), rows(M, F, D)),
    "match": (recovery.match, COSINE),
    "mmcs": (recovery.mmcs, COSINE),
    "best_cosine": (recovery.best_cosine, COSINE),
    "concept_fates": (recovery.concept_fates, COSINE),
    "redundancy": (recovery.redundancy, rows(M, F, D), torch.ones(M, F, dtype=torch.long)),
    "explained_variance": (lambda x, y: firing.Moments.of(x, y).explained_variance(), rows(B, D), rows(M, B, D)),
    "l0": (lambda values: Codes.dense(values).l0(), CODES),
    "l1": (lambda values: Codes.dense(values).l1(), CODES),
    "counts": (lambda values: Codes.dense(values).counts(), CODES),
    "density": (lambda values: firing.density(Codes.dense(values).counts(), B), CODES),
    "dead": (lambda values: firing.dead(Codes.dense(values).counts()), CODES),
    "relative_norm": (lambda written: circuits.relative_norm(written, (2, 4)), rows(M, F, D)),
    "allowed": (lambda mask: attention.allowed(mask, True), MASK),
    "attention_entropy": (attention.attention_entropy, PATTERN, KEYS),
    "sharpness": (attention.sharpness, PATTERN, KEYS),
    "row_std": (attention.row_std, PATTERN),
    "effective_keys": (attention.mean_effective_keys, PATTERN, KEYS),
    "cka": (heads.cka, HEADS),
    "cosine_redundancy": (heads.cosine_redundancy, HEADS),
    "effective_rank": (heads.effective_rank, HEADS),
}


@pytest.mark.parametrize("name", CASES)
def test_a_metric_runs_where_its_tensors_are(name, device):
    metric, *given = CASES[name]
    expected, found = metric(*given), metric(*(tensor.to(device) for tensor in given))
    assert found.device.type == device.partition(":")[0]
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)
