"""The readable step, every rule and every mechanism, on every device: what the CPU makes of the same batches."""

import pytest
import torch

from tests.devices.elsewhere import There
from unbraid.devices import Hardware
from unbraid.dictionaries import BatchTopK, Dictionary, Gated, JumpRelu, Relu, TopK
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.dictionaries.stack import Stack, Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.step import State, step
from unbraid.dictionaries.variational import Variational
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

D, F, BATCH = 8, 20, 16
WORLD = Superposition(dimensions=D, n_features=12, active=2.0)
DYING = AuxK(dead_after=2 * BATCH)
RULES = {
    "relu": Relu(),
    "topk": TopK(k=3, auxk=DYING),
    "batchtopk": BatchTopK(k=3, auxk=DYING),
    "jumprelu": JumpRelu(threshold=0.3, bandwidth=0.2),
    "gated": Gated(),
    "variational": Variational(),
    "horseshoe": Variational(slab="horseshoe"),
}
BESIDE = {
    "dynamic_pairs": ["pair_orthogonality"],
    "adaptive_tau": ["pair_orthogonality"],
    "adaptive_neighbourhoods": ["lateral_inhibition"],
    "momentum_importance": ["correlation_pruning"],
}
SETTINGS = {
    "correlation_pruning": {"every": 2, "least": 1, "threshold": 0.3},
    "reallocation": {"every": 2, "threshold": 0.9},
    "lateral_inhibition": {"every": 1, "in_use": True},
    "sparsity": {"target_l0": 3.0, "weight": 0.05},
}
FORMS = ["corrected", pytest.param("published", marks=pytest.mark.slow)]


def mechanisms_of(name, device, form=None):
    names = ["sparsity", *BESIDE.get(name, []), *([] if name == "sparsity" else [name])]
    found = {}
    for one in names:
        kind = MECHANISMS[one]
        takes = form is not None and "form" in kind.model_fields and one != "sparsity"
        settings = SETTINGS.get(one, {}) | ({"form": form} if takes else {})
        found[one] = stack_configs([kind(**settings)] * 2, device)
    return found


def run(device, rule, mechanism="sparsity", steps=4, dictionary=None, target=None, form=None, fast=False, **settings):
    """The tensors after some steps, by the readable step or by whatever is taken there."""
    dictionary = Dictionary(d_sae=F, activation=RULES[rule], pre_bias=True, **(dictionary or {}))
    rates = [Training(batch=BATCH, steps=steps, learning_rate=rate, **settings) for rate in (1e-2, 2e-2)]
    training = stack_configs(rates, device)
    mechanisms = mechanisms_of(mechanism, device, form)
    x, y = WORLD.batch(0, BATCH).x, None
    if target is not None:
        y = torch.randn(BATCH, target.dimensions, generator=torch.Generator().manual_seed(0))
    state = State.start(dictionary, D, mechanisms, [0, 1], x, target, hardware=Hardware(device))
    for position in range(steps):
        inputs = Inputs(WORLD.batch(position, BATCH).x, target=y)
        if fast:
            output = advance(state, inputs, training, mechanisms)
        else:
            there = inputs.to(state.stack.device)
            output = step(state, there.x, training, mechanisms, there.target)
    if device.startswith("lazy"):
        assert all(isinstance(tensor, There) for tensor in state.tensors().values())
    return state.tensors() | {f"terms.{name}": cost for name, cost in output.terms.items()} | {"l0": output.l0}


def compare(device, same, *asked, fast=False, **settings):
    by_loops = {"lateral_inhibition", "adaptive_neighbourhoods"} & set(asked)  # which only the CPU has
    found, expected = run(device, *asked, fast=fast, **settings), run("cpu", *asked, **settings)
    same(found, expected, asked, exactly=not by_loops and not fast)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", ["sum_square", pytest.param("norm", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fast", [False, True], ids=["readable", "fast"])
def test_every_rule(rule, loss, fast, device, same):
    compare(device, same, rule, reconstruction_loss=loss, clip=0.5, fast=fast)


@pytest.mark.parametrize("fast", [False, True], ids=["readable", "fast"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "mechanism", sorted(name for name, kind in MECHANISMS.items() if name != "sparsity" and not kind.needs_model)
)
def test_every_mechanism(mechanism, form, fast, device, same):
    compare(device, same, "batchtopk", mechanism, form=form, fast=fast)


@pytest.mark.parametrize("init", ["unit", "data", "published"])
def test_every_start(init, device, same):
    asked = {"init": init, "pre_bias_init": "geometric_median", "firing_share": 0.2}
    compare(device, same, "jumprelu", dictionary=asked)


@pytest.mark.parametrize("asked", [{}, {"skip": True}], ids=["plain", "skip"])
def test_transcoders(asked, device, same):
    compare(device, same, "topk", dictionary=asked, target=Target(6, sites=(2, 4)))


def test_something_is_reset_and_something_is_dead_in_these_tests(monkeypatch):
    from unbraid.dictionaries.training import step as steps

    resets = []
    monkeypatch.setattr(steps, "apply_reset", lambda state, reset, _: resets.append(int(reset.features.sum())))
    for mechanism in ("correlation_pruning", "reallocation"):
        run("cpu", "batchtopk", mechanism)
    assert len(resets) >= 2
    assert all(resets)
    assert (run("cpu", "topk", steps=6)["terms.auxk"] > 0).any()


def test_a_dictionary_is_saved_from_anywhere(tmp_path, device):
    from unbraid.dictionaries.formats.load import load

    stack = Stack.start(Dictionary(d_sae=F, activation=BatchTopK(k=3), pre_bias=True), D, [0, 1])
    stack.to(device).save(tmp_path / "saved")
    read = load(tmp_path / "saved")
    assert all(torch.equal(tensor, read.tensors()[name]) for name, tensor in stack.tensors().items())


def test_what_is_encoded_and_decoded_comes_back_to_who_asked(device):
    stack = Stack.start(Dictionary(d_sae=F, activation=TopK(k=3)), D, [0, 1])
    there, x = stack.to(device), WORLD.batch(0, BATCH).x
    for asked in (x, x.to(device)):
        for codes in (there.encode(asked), encode(there, asked)):
            made = there.decode(codes, asked)
            assert {codes.values.device.type, made.device.type} == {asked.device.type}
            torch.testing.assert_close(made.cpu(), stack.decode(stack.encode(x)), rtol=1e-4, atol=1e-5)
