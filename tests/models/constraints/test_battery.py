"""What every constraint promises, over the registry: settings survive TOML, it acts, off is identity, gradients."""

import tomllib
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.recall import Recall
from unbraid.config import check, to_toml
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.models import Transformer, start_models
from unbraid.models.constraints import CONSTRAINTS, Enabled, costs, enabled, recorded_for
from unbraid.models.constraints.independence import Conditional, club
from unbraid.models.training import ModelState, ModelTraining, train_model

EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "orthogonality": [{"layers": [0, 1]}, {"form": "published"}],
    "independence": [
        {"layers": "all"},
        {"form": "published", "temperature": 0.5},
        {"form": "info_nce_bound"},
        {"form": "club"},
        {"form": "club_unit_length"},
    ],
    "attention_entropy": [{}, {"form": "published", "layers": [0]}],
    "head_usage": [{}, {"form": "published"}],
}
CASES = [(name, settings) for name, examples in EXAMPLES.items() for settings in examples]
over_examples = pytest.mark.parametrize(("name", "settings"), CASES)
SHAPES = {"m": 2, "b": 4, "h": 3, "t": 5, "e": 2, "s": 5, "d": 6}
AXES = {"pattern": "mbhts", "output": "mbhte", "written": "mbhtd"}
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]).bool()
MODEL = Transformer(d_model=8, heads=2, d_ff=12)


def record(name, settings):
    return enabled(check(Enabled, {name: settings}, "here"))[name]


def given(constraint, rng, kind="drawn"):
    """What the constraint needs, drawn, all zero, or the same for all heads and stories."""
    keys = torch.arange(1, 6).expand(4, 5)
    made: dict[str, torch.Tensor] = {"mask": MASK, "keys": keys}
    for need in set(constraint.needs) - set(made):
        values = rng.standard_normal([SHAPES[axis] for axis in AXES[need]])
        if need == "pattern":
            values = np.tril(np.exp(values))
            values /= values.sum(-1, keepdims=True)
        values = {"drawn": values, "zero": 0 * values, "tied": np.broadcast_to(values[:, :1, :1], values.shape)}[kind]
        made[need] = torch.from_numpy(values.copy()).requires_grad_()
    return {need: made[need] for need in constraint.needs}


def test_every_registered_constraint_has_an_example_of_every_form():
    assert set(EXAMPLES) == set(CONSTRAINTS)
    for name, kind in CONSTRAINTS.items():
        forms = {record(name, settings).form for settings in EXAMPLES[name]}
        assert forms == set(kind.model_fields["form"].annotation.__args__)


@over_examples
def test_its_settings_survive_toml_and_its_presence_switches_it_on(name, settings):
    constraint = record(name, settings)
    tree = tomllib.loads(to_toml({name: constraint.to_dict()}))
    assert enabled(check(Enabled, tree, "here")) == {name: constraint}


@over_examples
def test_gradients_are_those_of_finite_differences(name, settings, rng):
    constraint = record(name, settings)
    made = given(constraint, rng)
    (need,) = set(made) - {"mask", "keys"}
    made[need] = (made[need] + 0.01).detach().requires_grad_()  # at 0 a pattern has a slope to one side only
    if (name, constraint.form) == ("independence", "corrected"):  # of few stories its floor counts, which is held still
        written = torch.from_numpy(rng.standard_normal((2, 16, 3, 5, 2))).requires_grad_()
        every = torch.ones(16, 5, dtype=torch.bool)
        assert torch.autograd.gradcheck(lambda values: constraint.cost(every, written=values), [written])
    elif constraint.form.startswith("club"):
        z = torch.from_numpy(rng.standard_normal((2, 4, 3, 2))).requires_grad_()
        still = Conditional.of(torch.from_numpy(rng.standard_normal((2, 4, 3, 2))))
        assert torch.autograd.gradcheck(lambda z: club(z, still), [z])
    else:
        assert torch.autograd.gradcheck(lambda values: constraint.cost(**{**made, need: values}), [made[need]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["drawn", "zero", "tied"])
@over_examples
def test_costs_and_gradients_are_finite_under_masks_at_zeros_and_at_ties(name, settings, kind, dtype, rng):
    constraint = record(name, settings)
    made = given(constraint, rng, kind)
    made = {need: t.detach().to(dtype).requires_grad_() if t.is_floating_point() else t for need, t in made.items()}
    cost = constraint.cost(**made)
    (leaf,) = [t for t in made.values() if t.requires_grad]
    (gradient,) = torch.autograd.grad(cost.sum(), leaf)
    assert cost.isfinite().all()
    assert gradient.isfinite().all()
    at_padding = gradient.transpose(2, 3)[:, ~MASK]
    assert (at_padding == 0).all()


@over_examples
def test_padding_counts_for_nothing(name, settings, rng):
    constraint = record(name, settings)
    made = {need: tensor.detach() for need, tensor in given(constraint, rng).items()}
    other = dict(made)
    for need in set(made) - {"mask", "keys"}:
        other[need] = made[need].clone()
        other[need].transpose(2, 3)[:, ~MASK] = 7.0
    torch.testing.assert_close(constraint.cost(**made), constraint.cost(**other))


@over_examples
def test_one_head_costs_nothing_or_can_be_reckoned(name, settings, rng):
    constraint = record(name, settings)
    made = {need: t if need in {"mask", "keys"} else t.detach()[:, :, :1] for need, t in given(constraint, rng).items()}
    cost = constraint.cost(**made)
    assert cost.isfinite().all()
    if name != "attention_entropy":
        torch.testing.assert_close(cost, torch.zeros(2, dtype=cost.dtype), rtol=0, atol=1e-8)


@over_examples
def test_the_model_records_what_it_needs_and_nothing_else(name, settings):
    constraint = record(name, settings)
    models = start_models(MODEL, 7, 8, 2, [0, 1])
    names = recorded_for({name: constraint}, MODEL.layers)
    passed = models.forward(Recall().batch(0, 4).tokens, names)
    assert set(passed.recorded) == names
    hooks = {"pattern": "hook_pattern", "output": "hook_z", "written": "hook_result"}
    needed = {hooks[need] for need in constraint.needs if need in hooks}
    layers = {"last": {1}, "all": {0, 1}}.get(constraint.layers) or set(constraint.layers)
    assert names == {f"blocks.{layer}.attn.{hook}" for layer in layers for hook in needed}
    total = costs({name: constraint}, passed, MODEL.layers)[name]
    own = []
    for layer in layers:
        made = {"mask": passed.attention_mask.token_mask, "keys": passed.attention_mask.key_counts()}
        made |= {need: passed.recorded.get(f"blocks.{layer}.attn.{hook}") for need, hook in hooks.items()}
        own.append(constraint.cost(**{need: made[need] for need in constraint.needs}))
    torch.testing.assert_close(total, constraint.weight * torch.stack(own).mean(0))


def end(constraints, seeds):
    state = ModelState.start(MODEL, Recall(), seeds)
    teaching = stack_configs([ModelTraining(steps=6, batch=12, learning_rate=0.02)] * len(seeds))
    for _ in train_model(state, Recall(), teaching, constraints):
        pass
    return state.weights.row


@over_examples
def test_it_does_something_off_is_identity_and_company_does_not_matter(name, settings):
    weights = [3.0, 0.0, 0.5]
    stacked = {name: stack_configs([record(name, {**settings, "weight": weight}) for weight in weights])}
    among, plain = end(stacked, [0, 1, 2]), end({}, [0, 1, 2])
    changed = (among - plain).abs().amax(1)
    assert changed[0] > 1e-3
    assert changed[1] < 1e-5
    alone = end({name: stack_configs([record(name, {**settings, "weight": 3.0})])}, [0])
    torch.testing.assert_close(among[:1], alone, rtol=0, atol=1e-3 * float(changed[0]))


def test_layers_that_are_not_there_are_refused():
    for layers, said in (((0, 2), "layer 2 of a model of 2 layers"), ((-1,), "layer -1"), ((), "no layer")):
        with pytest.raises(UserError, match=said):
            recorded_for({"head_usage": CONSTRAINTS["head_usage"](layers=layers)}, 2)
