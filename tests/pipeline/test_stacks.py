"""Which members train together: equal but for seeds and per-member hyper-parameters."""

import json
import sys
from subprocess import run

import pytest

from unbraid.dictionaries import ACTIVATIONS
from unbraid.dictionaries.variational import SLABS
from unbraid.pipeline.expand import expand
from unbraid.pipeline.kinds import dictionaries


def sizes(sweep: dict[str, list[object]]) -> list[int]:
    plan = expand({"mechanisms": {"sparsity": {}}, "sweep": sweep}, "here")
    return [len(stack.members) for stack in plan.stacks]


def test_seeds_and_per_member_hyper_parameters_share_a_stack():
    sweep = {
        "mechanisms.sparsity.weight": [0.1, 0.2],
        "training.learning_rate": [1e-3, 1e-2],
        "seed": [0, 1, 2],
    }
    assert sizes(sweep) == [12]


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
    data = {"sweep": {"seed": list(range(7))}}
    monkeypatch.setattr(dictionaries, "STACK_BYTES", 3 * expand(data, "here").first.memory())
    plan = expand(data, "here")
    assert [len(stack.members) for stack in plan.stacks] == [3, 3, 1]
    assert tuple(member for stack in plan.stacks for member in stack.members) == plan.members


def test_small_models_are_trained_together_and_large_ones_one_by_one():
    """A batch of 8 stories of `one_fact`, at most 90 tokens, has 8 · 90 · d_model numbers."""
    for width, sizes in ((88, [16, 4]), (96, [1] * 20)):
        model = {"d_model": width, "heads": 4, "training": {"batch": 8}}
        plan = expand({"kind": "models", "model": model, "sweep": {"seed": list(range(20))}}, "here")
        assert [len(stack.members) for stack in plan.stacks] == sizes


def test_baselines_of_one_kind_and_world_share_a_stack_whatever_their_samples():
    sweep = {"baseline": [{"kind": "kmeans"}, {"kind": "pca"}], "samples.n": [40, 300], "world.seed": [0, 1]}
    plan = expand({"baseline": {"kind": "pca"}, "sweep": sweep}, "here")
    assert [len(stack.members) for stack in plan.stacks] == [2, 2, 2, 2]
    assert {member.experiment.samples.n for member in plan.stacks[0].members} == {40, 300}


def test_a_stack_is_named_by_its_settings_and_seeds():
    """As a person reads it: "top-k · seed 3", "top-k · 5 seeds", and of several settings how many they are."""
    cases = {"l1": {}, "top-k": {"dictionary": {"activation": {"kind": "topk", "k": 2}}}}
    one, many = (expand({"cases": cases, "sweep": {"seed": seeds}}, "here") for seeds in ([3], [0, 1]))
    assert [stack.name for stack in one.stacks] == ["l1 · seed 0/3", "top-k · seed 0/3"]
    assert [stack.name for stack in many.stacks] == ["l1 · 2 seeds", "top-k · 2 seeds"]
    sweep = {"training.learning_rate": [1e-3, 1e-2], "seed": [0, 1]}
    (mixed,) = expand({"sweep": sweep}, "here").stacks
    assert mixed.name == "2 settings from learning_rate 0.001 · 2 seeds"
    assert mixed.names[-1] == "learning_rate 0.01 · seed 0/1"
    assert mixed.shown == (0, 2), "the first member of each setting"


RULES = [
    *({"kind": kind} for kind in ("relu", "jumprelu", "gated")),
    *({"kind": kind, "k": 32} for kind in ("topk", "batchtopk")),
    *({"kind": "variational", "slab": slab} for slab in SLABS),
]
STEPS = """
import json, sys
from pathlib import Path
from unbraid.pipeline.expand import expand
from unbraid.dictionaries.training.fit import advance, inputs_of
from unbraid.dictionaries.training.step import State

def train(features, batch):
    trained = {"d_sae": features, "activation": json.loads(sys.argv[1])}
    world = {"dimensions": 256, "n_features": 64}
    experiment = expand({"world": world, "dictionary": trained, "training": {"batch": batch}}, "here").first
    state = State.start(experiment.dictionary, experiment.dimensions, {}, [0])
    for step in range(2):
        advance(state, inputs_of(experiment.world, experiment.training)(step), experiment.training, {})
    return experiment.memory()

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
    experiment = expand({"world": world, "dictionary": trained, "training": {"batch": b}}, "here").first
    assert experiment.memory() == 4 * (8 * f * d + held * b * f + 3 * b * d + 3 * n * f + n * d)
