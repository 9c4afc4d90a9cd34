"""What Hopfield heads remember, where it can be known."""

import pytest
import torch

from unbraid.examining.examine import fresh
from unbraid.examining.remembering import remembered
from unbraid.models.attention.hopfield import Hopfield


def test_other_attention_has_nothing_to_say(make, world):
    assert remembered(make(), fresh(world, 4)[0]) == {}


def test_very_cold_heads_recall_single_tokens_and_very_warm_ones_an_average(make, world):
    batch = fresh(world, 8)[0]
    one = make(attention=Hopfield())
    beta = one.weights["blocks.1.attn.log_beta"]
    beta[:] = -20.0
    warm = remembered(one, batch)
    lengths = batch.mask.sum(1).double()
    assert warm["recalled"].item() == pytest.approx((lengths**2).sum().item() / lengths.sum().item(), rel=1e-3)
    assert warm["attractors"].item() == pytest.approx((1 / lengths).mean().item())
    beta[:] = 20.0
    cold = remembered(one, batch)
    assert cold["recalled"].item() < 1.1
    assert 1 / lengths.max() < cold["attractors"].item() <= 1
    torch.testing.assert_close(cold["store_separation"], warm["store_separation"])
