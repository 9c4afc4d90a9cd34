"""What every dictionary promises, over the registry of activations: list a kind here and it is tested."""

import tomllib
from functools import cache

import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.config import check, to_toml
from unbraid.dictionaries import ACTIVATIONS, AuxK, Dictionary, Stack
from unbraid.dictionaries.mechanisms import Mechanism, Reset, Signals, Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.dictionaries.training.step import State, run_forward, step
from unbraid.worlds import Superposition

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
FEATURES, DIMENSIONS = 10, 6
TRAINING = Training(steps=12, batch=32, learning_rate=0.03)
WORLD = Superposition(dimensions=DIMENSIONS, n_features=12, active=2.0)
CASES = [(kind, settings, pre_bias) for kind in EXAMPLES for settings in EXAMPLES[kind] for pre_bias in (False, True)]


EXACT = [case for case in CASES if case[0] != "jumprelu"]
"""Those whose gradients in training are true ones; jump-relu's pretend, see test_jump_relu.py."""


def _name(case):
    return f"{case[0]}-{case[1]}-{'centred' if case[2] else 'plain'}"


@pytest.fixture(params=CASES, ids=_name)
def dictionary(request):
    kind, settings, pre_bias = request.param
    return Dictionary(d_sae=FEATURES, activation=ACTIVATIONS[kind](**settings), pre_bias=pre_bias)


@pytest.fixture
def stack(dictionary):
    """Three members in general position, in float64: nothing is zero, encoder and decoder differ, memories too."""
    rng = np.random.default_rng(3)
    start = Stack.start(dictionary, DIMENSIONS, [0, 1, 2])
    changed = {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    stack = start.with_parameters(changed)
    stack.normalize()
    stack.remember({name: torch.tensor([0.2, 0.3, 0.4]) for name in stack.memory if name == "threshold"})
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
    assert check(Dictionary, tomllib.loads(to_toml(dictionary.to_dict())), "here") == dictionary


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


@pytest.mark.parametrize("dictionary", EXACT, ids=_name, indirect=True)
def test_gradients_of_a_training_pass_are_those_of_finite_differences(stack, x):
    parameters = stack.parameters()

    def costs(*values):
        changed = stack.with_parameters(dict(zip(parameters, values, strict=True)))
        forward = run_forward(changed, x, {}, Signals())
        return changed.decode(forward.codes), forward.counted(), *forward.fired.costs.values()

    leaves = [p.clone().requires_grad_() for p in parameters.values()]
    assert torch.autograd.gradcheck(costs, leaves, fast_mode=True)


def test_all_it_is_can_be_saved_and_restored(trained, x):
    restored = Stack.of({name: tensor.clone() for name, tensor in trained.tensors().items()}, trained.activation)
    assert torch.equal(restored.encode(x.float()).to_dense(), trained.encode(x.float()).to_dense())
    assert restored.tensors().keys() == trained.tensors().keys()


def test_probabilities_of_firing_agree_with_what_fires(stack, x):
    fired, probabilities = stack.encode(x).to_dense() != 0, stack.probabilities(x)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert (probabilities[fired] > 0.5).all()
    if stack.activation.kind != "variational":
        assert torch.equal(probabilities != 0, fired)


MECHANISMS = {"sparsity": Sparsity(weight=0.1)}


def begin(dictionary, seeds, mechanisms=MECHANISMS):
    return State.start(dictionary, DIMENSIONS, mechanisms, seeds)


@cache
def batch(position):
    return WORLD.batch(position, TRAINING.batch).x


def go(state, until, mechanisms=MECHANISMS):
    while state.step < until:
        step(state, batch(state.step), TRAINING, mechanisms)
    return state.tensors()


def test_training_changes_every_weight_and_all_it_remembers(dictionary):
    before = {name: tensor.clone() for name, tensor in begin(dictionary, [0, 1]).stack.tensors().items()}
    after = go(begin(dictionary, [0, 1]), TRAINING.steps)
    unmoved = [name for name, tensor in before.items() if torch.equal(tensor, after[f"stack.{name}"])]
    assert unmoved in ([], ["noise_seed"])


def test_stopping_half_way_and_going_on_ends_with_the_same_bits(dictionary):
    whole = go(begin(dictionary, [0, 1]), TRAINING.steps)
    saved = {name: tensor.clone() for name, tensor in go(begin(dictionary, [0, 1]), 6).items()}
    resumed = begin(dictionary, [8, 9])
    for name, tensor in resumed.tensors().items():
        tensor.copy_(saved[name])
    resumed.step = 6
    ended = go(resumed, TRAINING.steps)
    assert whole.keys() == ended.keys()
    assert all(torch.equal(tensor, ended[name]) for name, tensor in whole.items())


def test_company_does_not_matter(dictionary):
    together, alone = go(begin(dictionary, [7, 4, 1]), TRAINING.steps), go(begin(dictionary, [4]), TRAINING.steps)
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name][1:2], tensor, rtol=1e-3, atol=1e-4)
    assert (together["stack.encoder"][0] - together["stack.encoder"][1]).abs().max() > 0.01


class Renew(Mechanism):
    """Starts feature 3 of member 1 anew after every step."""

    def edit(self, forward, memory, stack, signals):
        features = torch.zeros(forward.codes.values.shape[0], FEATURES, dtype=torch.bool)
        features[1, 3] = True
        rows = torch.ones(*features.shape, DIMENSIONS)
        return Reset(features, rows, rows)


def test_a_feature_that_starts_anew_gets_the_rules_weights_anew(dictionary):
    mechanisms = {**MECHANISMS, "renew": Renew()}
    state = begin(dictionary, [0, 1], mechanisms)
    go(state, 4, mechanisms)
    for name, beginning in dictionary.activation.parameters(2, FEATURES).items():
        assert state.stack.rule[name][1, 3] == beginning[1, 3]
        assert (state.stack.rule[name] != beginning).any()
        assert state.adam.age[name][1, 3] == 0
        assert state.adam.age[name][0, 3] == 4
