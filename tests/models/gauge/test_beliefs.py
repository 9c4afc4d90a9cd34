"""Beliefs in the common frame, their inverses, covariances that rounding has spoilt, and folded matrices."""

import pytest
import torch

from unbraid.models.gauge.beliefs import Beliefs, Indefinite, definite_root, fold, pair_weights, products, unfold
from unbraid.models.gauge.frames import turns


def test_diagonal_in_its_own_frame_needs_no_decomposition(rng):
    frames = torch.from_numpy(rng.standard_normal((1, 2, 3, 3)))
    mean, variance = (torch.from_numpy(rng.uniform(0.5, 2, (1, 2, 3, 4, 5))) for _ in range(2))
    turn = turns(frames, {2})[2]
    known = Beliefs.turned(mean, variance, turn)
    covariance = turn.mT[:, :, :, None] @ torch.diag_embed(variance) @ turn[:, :, :, None]
    made = Beliefs(mean @ turn, fold(covariance))
    for part in ("mean", "covariance", "precision", "logdet", "weighted", "second"):
        torch.testing.assert_close(getattr(known, part), getattr(made, part), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(unfold(made.precision, 5), torch.linalg.inv(covariance))
    torch.testing.assert_close(made.logdet, torch.logdet(covariance))


@pytest.mark.parametrize("width", [1, 3])
def test_gradients_of_the_inverse_are_right(width, rng):
    root = torch.from_numpy(rng.standard_normal((1, 1, 2, 1, width, width)))
    folded = fold(root @ root.mT + torch.eye(width)).requires_grad_()
    mean = torch.zeros(1, 1, 2, 1, width, dtype=torch.float64)

    def inverse(s):
        one = Beliefs(mean, s)
        return one.precision, one.logdet

    assert torch.autograd.gradcheck(inverse, (folded,))


def test_a_covariance_that_rounding_spoilt_is_mended_and_one_that_is_none_is_refused():
    good = torch.eye(3).expand(2, 4, 3, 3).clone()
    spoilt = good.clone()
    spoilt[1, 2] = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0 - 1e-7, 0.0], [0.0, 0.0, 1.0]])
    root = definite_root(spoilt)
    torch.testing.assert_close(root @ root.mT, spoilt, rtol=0, atol=1e-4)
    torch.testing.assert_close(root[0], good[0], rtol=0, atol=0)
    spoilt[1, 2, 0, 0] = -5
    with pytest.raises(Indefinite) as refused:
        definite_root(spoilt)
    assert refused.value.member == 1


def test_folding_keeps_matrices_and_their_inner_products(rng):
    a, b = (torch.from_numpy(m + m.swapaxes(1, 2)) for m in rng.standard_normal((2, 7, 4, 4)))
    torch.testing.assert_close(unfold(fold(a), 4), a)
    torch.testing.assert_close((pair_weights(4, a.dtype) * fold(a) * fold(b)).sum(-1), (a * b).sum((1, 2)))
    x = torch.from_numpy(rng.standard_normal((7, 4)))
    torch.testing.assert_close(unfold(products(x), 4), x[:, :, None] * x[:, None, :])
    skewed = torch.from_numpy(rng.standard_normal((2, 3, 3)))
    torch.testing.assert_close(unfold(fold(skewed), 3), (skewed + skewed.mT) / 2)
