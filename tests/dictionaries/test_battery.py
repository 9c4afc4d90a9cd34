"""What every dictionary promises, over the registry of activations: list a kind here and it is tested.

Most promises are in `unbraid/battery/activations.py`, where `unbraid check-plugin` runs them too.
"""

import numpy as np
import pytest
import torch

from unbraid.battery import Example
from unbraid.battery import activations as battery
from unbraid.battery.activations import DIMENSIONS, FEATURES, RuleCase
from unbraid.codes import Codes
from unbraid.dictionaries import ACTIVATIONS, AuxK, Stack

EXAMPLES = {
    "relu": [{}],
    "topk": [{"k": 1}, {"k": 3, "auxk": AuxK(k=2, dead_after=32)}],
    "batchtopk": [{"k": 1, "auxk": AuxK(dead_after=32)}, {"k": 3, "momentum": 0.5, "auxk": AuxK(weight=0)}],
    "jumprelu": [{}, {"threshold": 0.3, "bandwidth": 0.5}],
    "gated": [{}],
    "variational": [
        {"sharpness": 1.0},
        {"slab": "laplace", "rate": 0.2, "sharpness": 2.0},
        {"slab": "horseshoe", "weight": 0.3},
    ],
}
CASES = [
    RuleCase(kind, Example(settings, exact_gradients=kind != "jumprelu"), pre_bias)
    for kind in EXAMPLES
    for settings in EXAMPLES[kind]
    for pre_bias in (False, True)
]
"""The gradients of jump-relu in training pretend, see test_jump_relu.py."""


def _name(case):
    return f"{case.name}-{case.example.settings}-{'centred' if case.pre_bias else 'plain'}"


@pytest.fixture(params=CASES, ids=_name)
def case(request):
    return request.param


@pytest.fixture
def stack(case):
    return case.stack


@pytest.fixture
def x():
    return battery.inputs()


def test_every_registered_kind_has_an_example():
    assert set(EXAMPLES) == set(ACTIVATIONS)


CHECKS = {promise.check: promise.sentence for promise in battery.PROMISES}


@pytest.mark.parametrize("check", CHECKS, ids=CHECKS.values())
def test_promises(case, check):
    apart = {battery.gradients_in_training_are_right: case.name == "jumprelu"}
    apart[battery.a_reset_feature_is_new] = case.name not in ("jumprelu", "gated", "variational")
    assert (check(case) is not None) == apart.get(check, False)


def test_one_face(stack, x):
    codes = stack.encode(x)
    assert isinstance(codes, Codes)
    assert codes.width == FEATURES
    assert codes.to_dense().shape == (3, 9, FEATURES)
    assert stack.decode(codes).shape == (3, 9, DIMENSIONS)
    assert stack.directions.shape == (3, FEATURES, DIMENSIONS)
    assert (stack.members, stack.features) == (3, FEATURES)
    assert stack.member(1).members == 1


def test_directions_have_length_one_at_the_start(case):
    lengths = Stack.start(case.dictionary, DIMENSIONS, [0, 1, 2]).directions.norm(dim=-1)
    np.testing.assert_allclose(lengths.numpy(), 1, rtol=1e-6)


def test_directions_have_length_one_after_training_and_have_moved(case):
    np.testing.assert_allclose(case.trained.directions.norm(dim=-1).numpy(), 1, rtol=1e-6)
    assert (case.trained.directions - Stack.start(case.dictionary, DIMENSIONS, [0, 1, 2]).directions).abs().max() > 0.01


def test_decoding_is_an_explicit_sum(stack, x):
    codes = stack.encode(x)
    dense, decoder = codes.to_dense().numpy(), stack.decoder.numpy()
    expected = np.zeros((3, 9, DIMENSIONS))
    for m, b, f in np.ndindex(dense.shape):
        expected[m, b] += dense[m, b, f] * decoder[m, f]
    if stack.pre_bias is not None:
        expected += stack.pre_bias.numpy()[:, None]
    np.testing.assert_allclose(stack.decode(codes).numpy(), expected, atol=1e-12)


def test_only_a_rule_that_is_not_sure_gives_odds_to_what_does_not_fire(case, stack, x):
    probabilities = stack.probabilities(x)
    if case.name != "variational":
        assert torch.equal(probabilities != 0, stack.encode(x).to_dense() != 0)
