"""What every constraint promises: on drawn heads, and in the training of a small model."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from unbraid.axes import Tensor
from unbraid.battery.promise import Example, Promise
from unbraid.battery.stories import Recall
from unbraid.config import check, to_toml
from unbraid.members import stack_configs
from unbraid.models import Transformer, start_models
from unbraid.models.constraints import Constraint, Enabled, costs, enabled, recorded_for
from unbraid.models.training import ModelState, ModelTraining, train_model

SHAPES = {"m": 2, "b": 4, "h": 3, "t": 5, "e": 2, "s": 5, "d": 6}
AXES = {"pattern": "mbhts", "output": "mbhte", "written": "mbhtd"}
HOOKS = {"pattern": "hook_pattern", "output": "hook_z", "written": "hook_result"}
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]).bool()
MODEL = Transformer(d_model=8, heads=2, d_ff=12)
KINDS: tuple[Literal["drawn", "zero", "tied"], ...] = ("drawn", "zero", "tied")


@dataclass(frozen=True)
class ConstraintCase:
    """A constraint by its name in the registry, and an example of its settings."""

    name: str
    example: Example

    def record(self, **changed: Any) -> Constraint:
        settings = {**self.example.settings, **changed}
        return enabled(check(Enabled, {self.name: settings}, "here"))[self.name]


def constraint_cases(name: str, example: Example) -> dict[str, ConstraintCase]:
    return {name: ConstraintCase(name, example)}


def given(constraint: Constraint, kind: Literal["drawn", "zero", "tied"] = "drawn") -> dict[str, Tensor]:
    """What the constraint needs, drawn, all zero, or the same for all heads and stories."""
    rng, keys = np.random.default_rng(0), torch.arange(1, 6).expand(4, 5)
    made: dict[str, Tensor] = {"mask": MASK, "keys": keys}
    for need in sorted(set(constraint.needs) - set(made)):
        values = rng.standard_normal([SHAPES[axis] for axis in AXES[need]])
        if need == "pattern":
            values = np.tril(np.exp(values))
            values /= values.sum(-1, keepdims=True)
        values = {"drawn": values, "zero": 0 * values, "tied": np.broadcast_to(values[:, :1, :1], values.shape)}[kind]
        made[need] = torch.from_numpy(values.copy()).requires_grad_()
    return {need: made[need] for need in constraint.needs}


def survives_toml(case: ConstraintCase) -> None:
    constraint = case.record()
    tree = tomllib.loads(to_toml({case.name: constraint.to_dict()}))
    assert enabled(check(Enabled, tree, "here")) == {case.name: constraint}


def gradients_are_right(case: ConstraintCase) -> str | None:
    if not case.example.exact_gradients:
        return "declared: its gradients are not those of its value (`exact_gradients`)"
    constraint = case.record()
    made = given(constraint)
    leaves = {need: (t + 0.01).detach().requires_grad_() for need, t in made.items() if need in AXES}  # 0 is a corner

    def cost(*values: Tensor) -> Tensor:
        return constraint.cost(**{**made, **dict(zip(leaves, values, strict=True))})

    assert torch.autograd.gradcheck(cost, list(leaves.values()))
    return None


def gradients_are_finite(case: ConstraintCase) -> None:
    """Under masks, at zeros and at ties, in both precisions; and none at padding."""
    constraint = case.record()
    for kind in KINDS:
        for dtype in (torch.float32, torch.float64):
            drawn = given(constraint, kind).items()
            made = {need: t.detach().to(dtype).requires_grad_() if need in AXES else t for need, t in drawn}
            cost = constraint.cost(**made)
            assert cost.isfinite().all(), f"of {kind} heads the cost is not finite"
            for need, leaf in made.items():
                if leaf.requires_grad:
                    (gradient,) = torch.autograd.grad(cost.sum(), leaf, retain_graph=True)
                    assert gradient.isfinite().all(), f"of {kind} heads the gradient of {need} is not finite"
                    padding = gradient.transpose(2, 3)[:, ~MASK]
                    assert (padding == 0).all(), f"of {kind} heads {need} has a gradient at padding"


def padding_counts_for_nothing(case: ConstraintCase) -> None:
    constraint = case.record()
    made = {need: tensor.detach() for need, tensor in given(constraint).items()}
    other = dict(made)
    for need in set(made) & set(AXES):
        other[need] = made[need].clone()
        other[need].transpose(2, 3)[:, ~MASK] = 7.0
    torch.testing.assert_close(constraint.cost(**made), constraint.cost(**other))


def one_head_can_be_reckoned(case: ConstraintCase) -> None:
    constraint = case.record()
    made = {need: t.detach()[:, :, :1] if need in AXES else t for need, t in given(constraint).items()}
    assert constraint.cost(**made).isfinite().all(), "of one head the cost is not finite"


def the_model_records_what_it_needs(case: ConstraintCase) -> None:
    constraint = case.record()
    models = start_models(MODEL, 7, 8, 2, [0, 1])
    names = recorded_for({case.name: constraint}, MODEL.layers)
    passed = models.forward(Recall().batch(0, 4).tokens, names)
    assert set(passed.recorded) == names
    layers = constraint.chosen_layers(MODEL.layers)
    needed = {HOOKS[need] for need in constraint.needs if need in HOOKS}
    assert names == {f"blocks.{layer}.attn.{hook}" for layer in layers for hook in needed}
    total = costs({case.name: constraint}, passed, MODEL.layers)[case.name]
    own: list[Tensor] = []
    for layer in layers:
        made = {"mask": passed.attention_mask.token_mask, "keys": passed.attention_mask.key_counts()}
        for need, hook in HOOKS.items():
            if need in constraint.needs:
                made[need] = passed.recorded[f"blocks.{layer}.attn.{hook}"]
        own.append(constraint.cost(**{need: made[need] for need in constraint.needs}))
    torch.testing.assert_close(total, constraint.weight * torch.stack(own).mean(0))


def end(constraints: Mapping[str, Constraint], seeds: Sequence[int]) -> Tensor:
    """All weights after a short training, a row a member."""
    state = ModelState.start(MODEL, Recall(), seeds)
    training = stack_configs([ModelTraining(steps=6, batch=12, learning_rate=0.02)] * len(seeds))
    for _ in train_model(state, Recall(), training, constraints):
        pass
    return state.weights.row


def acts_and_off_is_identity_and_company_does_not_matter(case: ConstraintCase) -> None:
    weights = [3.0, 0.0, 0.5]
    stacked = {case.name: stack_configs([case.record(weight=weight) for weight in weights])}
    among, plain = end(stacked, [0, 1, 2]), end({}, [0, 1, 2])
    changed = (among - plain).abs().amax(1)
    assert changed[0] > 1e-3, f"weight 3 changes no weight of the model by more than {float(changed[0]):.1g}"
    assert changed[1] < 1e-5, f"weight 0 changes the model by {float(changed[1]):.1g}"
    alone = end({case.name: stack_configs([case.record(weight=3.0)])}, [0])
    torch.testing.assert_close(among[:1], alone, rtol=0, atol=1e-3 * float(changed[0]))


PROMISES: tuple[Promise[ConstraintCase], ...] = (
    Promise("settings survive TOML, and presence switches it on", survives_toml),
    Promise("gradients are those of finite differences", gradients_are_right),
    Promise("cost and gradients are finite, at padding none", gradients_are_finite),
    Promise("padding counts for nothing", padding_counts_for_nothing),
    Promise("one head has a finite cost", one_head_can_be_reckoned),
    Promise("the model records what it needs and nothing else", the_model_records_what_it_needs),
    Promise(
        "does something, off is identity, company does not matter",
        acts_and_off_is_identity_and_company_does_not_matter,
    ),
)
