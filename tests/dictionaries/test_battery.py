"""What every dictionary promises, over the registry of activations: list a kind here and it is tested."""

import tomllib

import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.config import check, to_toml
from unbraid.dictionaries import ACTIVATIONS, Dictionary, Stack
from unbraid.training.fit import fit
from unbraid.training.schedule import Training
from unbraid.worlds import Superposition

EXAMPLES = {
    "relu": [{}],
    "topk": [{"k": 1}, {"k": 3}],
}
FEATURES, DIMENSIONS = 10, 6
WORLD = Superposition(dimensions=DIMENSIONS, features=12, active=2.0)
CASES = [(kind, settings, pre_bias) for kind in EXAMPLES for settings in EXAMPLES[kind] for pre_bias in (False, True)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}-{'centred' if case[2] else 'plain'}")
def dictionary(request):
    kind, settings, pre_bias = request.param
    return Dictionary(features=FEATURES, activation=ACTIVATIONS[kind](**settings), pre_bias=pre_bias)


@pytest.fixture
def stack(dictionary):
    """Three members in general position, in float64: nothing is zero, encoder and decoder differ."""
    rng = np.random.default_rng(3)
    start = Stack.start(dictionary, DIMENSIONS, [0, 1, 2])
    changed = {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    stack = start.with_parameters(changed)
    stack.normalise()
    return stack


@pytest.fixture
def trained(dictionary):
    training = Training(steps=15, batch=64, learning_rate=0.03)
    return fit(WORLD, dictionary, training=training, seeds=[0, 1, 2])


@pytest.fixture
def x():
    return torch.from_numpy(np.random.default_rng(4).standard_normal((9, DIMENSIONS)))


def test_every_registered_kind_has_an_example():
    assert set(EXAMPLES) == set(ACTIVATIONS)


def test_its_settings_survive_toml(dictionary):
    assert check(Dictionary, tomllib.loads(to_toml(dictionary.tree())), "here") == dictionary


def test_one_face(stack, x):
    codes = stack.encode(x)
    assert isinstance(codes, Codes)
    assert codes.width == FEATURES
    assert codes.to_dense().shape == (3, 9, FEATURES)
    assert stack.decode(codes).shape == (3, 9, DIMENSIONS)
    assert stack.directions.shape == (3, FEATURES, DIMENSIONS)
    assert (stack.members, stack.features) == (3, FEATURES)
    assert stack.member(1).members == 1


def test_directions_have_length_one_at_the_start(dictionary):
    lengths = Stack.start(dictionary, DIMENSIONS, [0, 1, 2]).directions.norm(dim=-1)
    np.testing.assert_allclose(lengths.numpy(), 1, rtol=1e-6)


def test_directions_have_length_one_after_training_and_have_moved(dictionary, trained):
    np.testing.assert_allclose(trained.directions.norm(dim=-1).numpy(), 1, rtol=1e-6)
    assert (trained.directions - Stack.start(dictionary, DIMENSIONS, [0, 1, 2]).directions).abs().max() > 0.01


def test_something_fires_and_everything_is_finite(stack, x):
    codes = stack.encode(x).to_dense()
    assert codes.isfinite().all()
    assert (codes != 0).any((1, 2)).all()


def test_decoding_is_an_explicit_sum(stack, x):
    codes = stack.encode(x)
    dense, decoder = codes.to_dense().numpy(), stack.decoder.numpy()
    expected = np.zeros((3, 9, DIMENSIONS))
    for m, b, f in np.ndindex(dense.shape):
        expected[m, b] += dense[m, b, f] * decoder[m, f]
    if stack.pre_bias is not None:
        expected += stack.pre_bias.numpy()[:, None]
    np.testing.assert_allclose(stack.decode(codes).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("member", [0, 1, 2])
def test_a_member_taken_out_encodes_and_decodes_as_it_did_in_the_stack(stack, x, member):
    alone, together = stack.member(member), stack.encode(x)
    torch.testing.assert_close(alone.encode(x).to_dense()[0], together.to_dense()[member])
    torch.testing.assert_close(alone.decode(alone.encode(x))[0], stack.decode(together)[member])


def test_relabelling_features_relabels_codes_and_changes_no_reconstruction(stack, x):
    order = torch.randperm(FEATURES, generator=torch.Generator().manual_seed(0))
    relabelled = stack.with_parameters(
        {name: p if name == "pre_bias" else p[:, order] for name, p in stack.parameters().items()}
    )
    before, after = stack.encode(x), relabelled.encode(x)
    torch.testing.assert_close(after.to_dense(), before.to_dense()[..., order])
    torch.testing.assert_close(relabelled.decode(after), stack.decode(before))


def test_gradients_of_the_whole_pass_are_those_of_finite_differences(stack, x):
    parameters = stack.parameters()

    def reconstruct(*values):
        changed = stack.with_parameters(dict(zip(parameters, values, strict=True)))
        codes = changed.encode(x)
        return changed.decode(codes), codes.l1()

    assert torch.autograd.gradcheck(reconstruct, [p.clone().requires_grad_() for p in parameters.values()])
