"""Lists of what fired are what the dense encoder says fired, however they are made."""

import pytest
import torch

from unbraid.dictionaries import Dictionary, Relu, Stack, TopK
from unbraid.dictionaries import lists as making
from unbraid.dictionaries.lists import Inputs, encode_lists, too_dense
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=24, n_features=40, active=3.0)
BATCH = WORLD.batch(0, 300)
PLAIN, PLANTED = Inputs(BATCH.x), Inputs(BATCH.x, BATCH.truth, WORLD.directions)


def stack(activation, bias=-0.5, features=150, pre_bias=False):
    made = Stack.start(Dictionary(d_sae=features, activation=activation, pre_bias=pre_bias), 24, [0, 1])
    made.encoder_bias.add_(bias + 0.05 * torch.randn(2, features, generator=torch.Generator().manual_seed(0)))
    if made.pre_bias is not None:
        made.pre_bias.add_(0.1)
    return made


@pytest.mark.parametrize("pre_bias", [False, True])
@pytest.mark.parametrize("inputs", [PLAIN, PLANTED], ids=["plain", "planted"])
@pytest.mark.parametrize("activation", [Relu(), TopK(k=1), TopK(k=7), TopK(k=150)], ids=str)
def test_lists_hold_what_the_dense_encoder_says(activation, inputs, pre_bias, monkeypatch):
    monkeypatch.setattr(making, "BLOCK_BYTES", 4 * 150 * 64)  # several blocks of samples, the last one short
    monkeypatch.setattr(making, "SCREENED_BLOCK", 64)
    monkeypatch.setattr(making, "PLANTED_BLOCK", 64)  # several blocks of features, the last one short
    one = stack(activation, pre_bias=pre_bias)
    lists = encode_lists(one, inputs)
    assert lists is not None
    torch.testing.assert_close(lists.codes().to_dense(), one.encode(BATCH.x).to_dense(), rtol=1e-5, atol=1e-6)
    assert torch.equal(lists.counts, one.encode(BATCH.x).l0())


def test_top_k_keeps_the_largest_also_when_values_come_in_order():
    rising = Stack.start(Dictionary(d_sae=64, activation=TopK(k=5)), 1, [0])
    rising.encoder.copy_(torch.arange(64.0)[None, :, None])
    lists = encode_lists(rising, Inputs(torch.ones(3, 1)))
    assert lists is not None
    assert lists.features.sort().values.tolist() == [[[59, 60, 61, 62, 63]] * 3]


def test_dense_codes_are_declined():
    assert too_dense(stack(Relu(), bias=0.3), PLAIN).all()
    assert not too_dense(stack(Relu(), bias=-0.5), PLAIN).any()
    assert not too_dense(stack(TopK(k=5), bias=0.3), PLAIN).any()


def test_a_sample_that_needs_more_room_gets_it(monkeypatch):
    monkeypatch.setattr(making, "_first_slots", lambda *_: 4)
    one = stack(Relu(), bias=-0.5)
    x = torch.zeros(200, 24)
    x[150] = 100 * one.encoder[0].sum(0)
    expected = one.encode(x)
    assert expected.l0()[0, 150] > 4
    lists = encode_lists(one, Inputs(x))
    assert lists is not None
    torch.testing.assert_close(lists.codes().to_dense(), expected.to_dense(), rtol=1e-5, atol=1e-4)


def test_lists_are_declined_where_nearly_everything_fires(monkeypatch):
    monkeypatch.setattr(making, "_first_slots", lambda *_: 4)
    assert encode_lists(stack(Relu(), bias=0.3), PLAIN) is None


def test_unused_slots_hold_nothing():
    lists = encode_lists(stack(Relu()), PLAIN)
    assert lists is not None
    codes = lists.codes()
    assert codes.values.shape[-1] == lists.counts.max()
    assert (codes.l0() == lists.counts).all()
