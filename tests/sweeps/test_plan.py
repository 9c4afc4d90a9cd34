"""Which members train together: equal but for seeds and per_member_fields."""

import json
import sys
from subprocess import run

import pytest
from unbraid.sweeps import plan as planning
from unbraid.sweeps.plan import plan

from unbraid.dictionaries import ACTIVATIONS
from unbraid.dictionaries.variational import SLABS
from unbraid.pipeline.expand import expand


def sizes(sweep: dict[str, list[object]]) -> list[int]:
    return [len(group) for group in plan(expand({"mechanisms": {"sparsity": {}}, "sweep": sweep}, "here"))]


def test_seeds_and_knobs_share_a_stack():
    per_member_fields = {
        "mechanisms.sparsity.weight": [0.1, 0.2],
        "training.learning_rate": [1e-3, 1e-2],
        "seed": [0, 1, 2],
    }
    assert sizes(per_member_fields) == [12]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("dictionary.d_sae", [16, 32]),
        ("dictionary.pre_bias", [False, True]),
        ("dictionary.activation", [{"kind": "relu"}, {"kind": "topk", "k": 2}]),
        ("training.steps", [5, 6]),
        ("world.seed", [0, 1]),
        ("mechanisms.sparsity.form", ["published", "per_sample"]),
    ],
)
def test_everything_else_makes_stacks_of_its_own(path: str, values: list[object]):
    assert sizes({path: values, "seed": [0, 1, 2]}) == [3, 3]


def test_a_stack_too_large_is_split_and_nobody_is_lost(monkeypatch: pytest.MonkeyPatch):
    members = expand({"sweep": {"seed": list(range(7))}}, "here")
    monkeypatch.setattr(planning, "STACK_BYTES", 3 * planning.member_bytes(members[0]))
    groups = plan(members)
    assert [len(group) for group in groups] == [3, 3, 1]
    assert [member for group in groups for member in group] == members


def test_small_models_are_taught_together_and_large_ones_one_by_one():
    """A batch of 8 stories of `one_fact`, at most 90 tokens, has 8 · 90 · d_model numbers."""
    data = {"world": {"kind": "stories"}, "teaching": {"batch": 8}, "sweep": {"seed": list(range(20))}}
    small, large = (expand({**data, "model": {"d_model": width, "heads": 4}}, "here") for width in (88, 96))
    assert [len(stack) for stack in plan(small)] == [16, 4]
    assert [len(stack) for stack in plan(large)] == [1] * 20


RULES = [
    *({"kind": kind} for kind in ("relu", "jumprelu", "gated")),
    *({"kind": kind, "k": 32} for kind in ("topk", "batchtopk")),
    *({"kind": "variational", "slab": slab} for slab in SLABS),
]
STEPS = """
import json, sys
from pathlib import Path
from unbraid.sweeps.grid import expand
from unbraid.sweeps.plan import member_bytes
from unbraid.dictionaries.training.fit import advance, inputs_of
from unbraid.dictionaries.training.step import State

def train(features, batch):
    trained = {"d_sae": features, "activation": json.loads(sys.argv[1])}
    world = {"dimensions": 256, "n_features": 64}
    [member] = expand({"world": world, "dictionary": trained, "training": {"batch": batch}}, "here")
    one = member.experiment
    state = State.start(one.dictionary, one.dimensions, {}, [0])
    for step in range(2):
        advance(state, inputs_of(one.world, one.training)(step), one.training, {})
    return member_bytes(member)

def kilobytes(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

train(64, 32)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = kilobytes("VmRSS")
print(train(8192, 1024), 1024 * (kilobytes("VmHWM") - before))
"""


def test_every_rule_is_measured():
    assert {rule["kind"] for rule in RULES} == set(ACTIVATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_member_takes_about_what_is_planned_at_most(rule: dict[str, object]):
    """The peak of a process that trains it, less what the process had before; a tenth is the allocator's."""
    done = run([sys.executable, "-c", STEPS, json.dumps(rule)], capture_output=True, text=True, check=True)
    planned, taken = map(int, done.stdout.split())
    assert 0.1 < taken / planned < 1.1


@pytest.mark.parametrize(("kind", "held"), [("relu", 4), ("jumprelu", 8), ("gated", 9), ("variational", 30)])
def test_what_is_planned_counts_what_the_rule_holds(kind: str, held: int):
    """4 bytes of: six weights, gradients and moments and two more; codes; inputs; cosines with the truth."""
    f, d, b, n = 1000, 50, 200, 60
    world = {"dimensions": d, "n_features": n}
    trained = {"d_sae": f, "activation": {"kind": kind}}
    [member] = expand({"world": world, "dictionary": trained, "training": {"batch": b}}, "here")
    assert planning.member_bytes(member) == 4 * (8 * f * d + held * b * f + 3 * b * d + 3 * n * f + n * d)
