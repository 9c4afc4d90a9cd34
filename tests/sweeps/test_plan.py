"""Which members train together: equal but for seeds and knobs."""

import json
import sys
from subprocess import run

import pytest

from unbraid.dictionaries.activations import ACTIVATIONS
from unbraid.sweeps import plan as planning
from unbraid.sweeps.grid import expand
from unbraid.sweeps.plan import plan


def sizes(sweep: dict[str, list[object]]) -> list[int]:
    return [len(group) for group in plan(expand({"mechanisms": {"sparsity": {}}, "sweep": sweep}, "here"))]


def test_seeds_and_knobs_share_a_stack():
    knobs = {"mechanisms.sparsity.weight": [0.1, 0.2], "training.learning_rate": [1e-3, 1e-2], "seed": [0, 1, 2]}
    assert sizes(knobs) == [12]


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("dictionary.features", [16, 32]),
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


STEPS = """
import json, resource, sys
from unbraid.sweeps.grid import expand
from unbraid.sweeps.plan import member_bytes
from unbraid.training.fit import advance, inputs_of
from unbraid.training.step import State

def train(features, batch):
    trained = {"features": features, "activation": json.loads(sys.argv[1])}
    world = {"dimensions": 256, "features": 64}
    [member] = expand({"world": world, "dictionary": trained, "training": {"batch": batch}}, "here")
    one = member.experiment
    state = State.start(one.dictionary, one.dimensions, {}, [0])
    for step in range(2):
        advance(state, inputs_of(one.world, one.training)(step), one.training, {})
    return member_bytes(member), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

_, before = train(64, 32)
planned, peak = train(8192, 1024)
print((peak - before) / planned)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_a_member_takes_no_more_memory_than_planned(kind: str):
    """The peak of a process that trains it, less what the process had before."""
    activation = {"kind": kind, **({"k": 32} if "topk" in kind else {})}
    done = run([sys.executable, "-c", STEPS, json.dumps(activation)], capture_output=True, text=True, check=True)
    assert 0.1 < float(done.stdout) < 1.1
