"""What every constraint promises, over the registry: list a constraint here and it is tested.

The promises are in `unbraid/battery/constraints.py`, where `unbraid check-plugin` runs them too.
"""

from typing import Any

import pytest
import torch

from unbraid.battery import Example
from unbraid.battery import constraints as battery
from unbraid.battery.constraints import ConstraintCase
from unbraid.errors import UserError
from unbraid.models.constraints import CONSTRAINTS, recorded_for
from unbraid.models.constraints.independence import Conditional, club

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
CASES = [
    ConstraintCase(
        name,
        Example(
            settings,
            exact_gradients=name != "independence" or settings.get("form") in ("published", "info_nce_bound"),
        ),
    )
    for name, examples in EXAMPLES.items()
    for settings in examples
]
"""Forms of independence hold something still, and have a test of their gradients of their own."""
over_cases = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.example.settings}")


def test_every_registered_constraint_has_an_example_of_every_form():
    assert set(EXAMPLES) == set(CONSTRAINTS)
    for name, kind in CONSTRAINTS.items():
        forms = {case.record().form for case in CASES if case.name == name}
        assert forms == set(kind.model_fields["form"].annotation.__args__)


@pytest.mark.parametrize("promise", battery.PROMISES, ids=lambda promise: promise.sentence)
@over_cases
def test_promises(case, promise):
    declared = promise.check(case) is not None
    assert declared == (promise.check is battery.gradients_are_right and not case.example.exact_gradients)


def test_gradients_of_independence_are_right_but_for_what_is_held_still(rng):
    constraint = CONSTRAINTS["independence"]()
    written = torch.from_numpy(rng.standard_normal((2, 16, 3, 5, 2))).requires_grad_()
    every = torch.ones(16, 5, dtype=torch.bool)  # of few stories its floor counts, which is held still
    assert torch.autograd.gradcheck(lambda values: constraint.cost(every, written=values), [written])
    z = torch.from_numpy(rng.standard_normal((2, 4, 3, 2))).requires_grad_()
    still = Conditional.of(torch.from_numpy(rng.standard_normal((2, 4, 3, 2))))
    assert torch.autograd.gradcheck(lambda z: club(z, still), [z])


@over_cases
def test_one_head_costs_nothing(case):
    constraint = case.record()
    made = {n: t.detach()[:, :, :1] if n in battery.AXES else t for n, t in battery.given(constraint).items()}
    if case.name != "attention_entropy":
        cost = constraint.cost(**made)
        torch.testing.assert_close(cost, torch.zeros(2, dtype=cost.dtype), rtol=0, atol=1e-8)


def test_layers_that_are_not_there_are_refused():
    for layers, said in (((0, 2), "layer 2 of a model of 2 layers"), ((-1,), "layer -1"), ((), "no layer")):
        with pytest.raises(UserError, match=said):
            recorded_for({"head_usage": CONSTRAINTS["head_usage"](layers=layers)}, 2)
