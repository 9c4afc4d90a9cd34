"""The screen errs only to the safe side, whatever the scale of what it is given, and lets little else through."""

import numpy as np
import pytest
import torch

from unbraid.dictionaries import Dictionary, Relu, Stack, TopK, screen
from unbraid.dictionaries import lists as making
from unbraid.dictionaries.lists import Inputs, encode_lists


def drawn(case, samples=300, features=200, dimensions=48):
    rng = np.random.default_rng(case)
    scale = 10.0 ** rng.uniform(-3, 3, (samples, 1))
    x = rng.standard_normal((samples, dimensions)) * scale + rng.uniform(-3, 3) * scale
    encoder = rng.standard_normal((features, dimensions)) * 10.0 ** rng.uniform(-2, 2, (features, 1))
    bias = -rng.uniform(0, 3, features) * np.linalg.norm(encoder, axis=1)
    return [torch.from_numpy(array.astype(np.float32)) for array in (x, encoder, bias)]


def may_fire(x, encoder, bias):
    buffer = torch.empty(len(x), len(encoder), dtype=torch.bfloat16)
    return screen.signs(screen.of_inputs(x), screen.of_encoder(encoder, bias), buffer) > 0


@pytest.mark.parametrize("case", range(20))
def test_nothing_that_fires_is_missed(case):
    x, encoder, bias = drawn(case)
    exact = x.double() @ encoder.double().T + bias.double()
    in_float32 = x @ encoder.T + bias
    assert may_fire(x, encoder, bias)[((exact > 0) | (in_float32 > 0)).numpy()].all()


@pytest.mark.parametrize("case", range(5))
def test_what_is_let_through_beyond_that_is_within_the_bounds(case):
    """All roundings together are below 3 in 100 of the product of lengths, and of the bias."""
    x, encoder, bias = drawn(case)
    exact = x.double() @ encoder.double().T + bias.double()
    allowed = 0.03 * (x.norm(dim=1)[:, None] * encoder.norm(dim=1) + bias.abs()).double()
    assert not may_fire(x, encoder, bias)[(exact < -allowed).numpy()].any()


def test_products_on_the_very_edge_are_not_missed():
    """x·w + bias is one step above 0 while the rounded product is below."""
    x = torch.tensor([[1 + 2**-9, 1.0]])
    encoder, bias = torch.tensor([[1 + 2**-9, 1.0]]), torch.tensor([-2.0])
    assert x.bfloat16().float() @ encoder.bfloat16().float().T + bias <= 0 < x @ encoder.T + bias
    assert may_fire(x, encoder, bias).all()


def test_zeros_fire_by_their_bias_alone():
    encoder = torch.ones(3, 4)
    assert may_fire(torch.zeros(1, 4), encoder, torch.tensor([-1.0, 1e-30, 1.0])).tolist() == [[False, True, True]]


def test_squares_that_overflow_hide_nothing():
    x = torch.zeros(2, 4)
    x[0, 0] = x[1, 1] = 1e25
    encoder = torch.zeros(4, 4)
    encoder[0, 0] = encoder[1, 1] = 1.0
    found = may_fire(x, encoder, torch.tensor([-1.0, -1.0, 1.0, -1.0]))
    assert found[[0, 1, 0, 1], [0, 1, 2, 2]].all()
    assert not found[:, 3].any()  # infinity times 0 would leave no sign to read


@pytest.mark.parametrize("pays", [False, True])
def test_with_and_without_a_screen_the_same_fires(pays, monkeypatch):
    monkeypatch.setattr(screen, "pays", lambda: pays)
    monkeypatch.setattr(making, "BLOCK_BYTES", 4 * 200 * 64)
    monkeypatch.setattr(making, "SCREENED_BLOCK", 64)
    x, encoder, bias = drawn(99)
    stack = Stack.start(Dictionary(d_sae=200, activation=Relu()), 48, [0]).with_parameters(
        {"encoder": encoder[None], "encoder_bias": bias[None] * 3}
    )
    lists = encode_lists(stack, Inputs(x))
    assert lists is not None
    expected = stack.encode(x).to_dense()
    torch.testing.assert_close(lists.codes().to_dense(), expected, rtol=1e-3, atol=1e-5 * float(expected.max()))


@pytest.mark.parametrize("case", range(12))
def test_the_largest_are_found_whatever_the_scales(case):
    x, encoder, bias = drawn(case, features=700)
    stack = Stack.start(Dictionary(d_sae=700, activation=TopK(k=6)), 48, [0]).with_parameters(
        {"encoder": encoder[None], "encoder_bias": -0.2 * bias[None]}
    )
    lists = encode_lists(stack, Inputs(x))
    assert lists is not None
    exact = (x.double() @ encoder.double().T - 0.2 * bias.double()).relu()
    found = lists.codes().values[0].sort(descending=True).values.double()
    torch.testing.assert_close(found, exact.topk(6).values, rtol=1e-4, atol=0)
    assert (lists.features[0].diff(dim=1) > 0)[:, 0].all()  # in the order of features


@pytest.mark.parametrize("case", range(5))
def test_a_screened_number_exceeds_the_exact_one_by_at_most_its_margin(case):
    x, encoder, bias = drawn(case)
    rounded, screening = screen.of_inputs(x), screen.of_encoder(encoder, bias)
    buffer = torch.empty(len(x), len(encoder), dtype=torch.bfloat16)
    screen.signs(rounded, screening, buffer)
    exact, found = x.double() @ encoder.double().T + bias.double(), buffer.double()
    assert (found - found.abs() / 128 <= exact + screen.margins(rounded, screening).double()[:, None]).all()
    assert (found + found.abs() / 128 >= exact).all()
