"""What Hopfield heads remember, where it can be known."""

import numpy as np
import pytest
import torch

from unbraid.examining.examine import fresh
from unbraid.examining.remembering import remembered
from unbraid.models.attention.hopfield import Hopfield


def test_other_attention_has_nothing_to_say(make, world):
    assert remembered(make(), fresh(world, 4)[0]) == {}


SLOPES = (1.0, 0.0)
"""By nearness, of the two heads."""


def averages(keys, tokens, slope):
    """Where a head that hears nothing rests: at the mean of each prefix, weighed by nearness; and how many that is."""
    for length in range(1, tokens + 1):
        weights = np.exp(-slope * np.arange(length)[::-1])
        weights /= weights.sum()
        yield weights @ keys[:length], np.exp(-(weights * np.log(weights)).sum())


def different(places, near):
    kept = []
    for place in places:
        if all(np.linalg.norm(place - other) > near for other in kept):
            kept.append(place)
    return len(kept)


def test_very_warm_heads_recall_an_average_of_what_they_may_see_and_very_cold_ones_single_tokens(make, world):
    batch = fresh(world, 8)[0]
    one = make(attention=Hopfield())
    beta = one.weights["blocks.1.attn.log_beta"]
    beta[:] = -20.0
    warm = remembered(one, batch)
    keys = one.forward(batch.tokens, ["blocks.1.attn.hook_k"]).recorded["blocks.1.attn.hook_k"][0].double().numpy()
    shares, effective = [], []
    for story, tokens in enumerate(batch.mask.sum(1).tolist()):
        for head, slope in enumerate(SLOPES):
            own = keys[story, head, :tokens]
            places, numbers = zip(*averages(own, tokens, slope), strict=True)
            shares.append(different(places, 1e-3 * np.linalg.norm(own, axis=1).max()) / tokens)
            effective += numbers
    assert warm["recalled"].item() == pytest.approx(np.mean(effective), rel=1e-3)
    assert warm["attractors"].item() == pytest.approx(np.mean(shares))
    beta[:] = 20.0
    cold = remembered(one, batch)
    assert cold["recalled"].item() < 1.1
    assert 1 / batch.mask.sum(1).max() < cold["attractors"].item() <= 1
    torch.testing.assert_close(cold["store_separation"], warm["store_separation"])
