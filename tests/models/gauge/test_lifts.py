"""Folding keeps a symmetric matrix, and inner products of lists are those of matrices."""

import torch

from unbraid.models.gauge.lifts import fold, products, unfold, weights


def test_folding_keeps_matrices_and_their_inner_products(rng):
    a, b = (torch.from_numpy(m + m.swapaxes(1, 2)) for m in rng.standard_normal((2, 7, 4, 4)))
    torch.testing.assert_close(unfold(fold(a), 4), a)
    torch.testing.assert_close((weights(4, a.dtype) * fold(a) * fold(b)).sum(-1), (a * b).sum((1, 2)))
    x = torch.from_numpy(rng.standard_normal((7, 4)))
    torch.testing.assert_close(unfold(products(x), 4), x[:, :, None] * x[:, None, :])
    skewed = torch.from_numpy(rng.standard_normal((2, 3, 3)))
    torch.testing.assert_close(unfold(fold(skewed), 3), (skewed + skewed.mT) / 2)
