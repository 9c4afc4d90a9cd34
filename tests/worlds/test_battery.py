"""What every planted world promises, over the registry: list a world here and it is tested.

The promises are in `unbraid/battery/worlds.py`, where `unbraid check-plugin` runs them too.
"""

import doctest
import importlib

import pytest

from unbraid.battery import worlds as battery
from unbraid.battery.worlds import WorldCase
from unbraid.worlds import WORLDS, Synth
from unbraid.worlds.firing import FIRING

FIRES = [
    {"kind": "independent"},
    {"kind": "independent", "form": "published"},
    {"kind": "correlated"},
    {"kind": "correlated", "rank": 2, "correlation": 0.6},
    {"kind": "correlated", "form": "published"},
    {"kind": "hierarchy", "children": 3, "child_probability": 0.7},
    {"kind": "hierarchy", "children": 2, "child_probability": 1.0, "exclusive": True},
]
FOREST = {"dimensions": 12, "n_features": 30, "roots": 4, "branching": 3, "depth": 2, "orthogonal_steps": 20}
EXAMPLES = {
    "synth": [
        FOREST,
        {**FOREST, "rank": 0, "bias": 0.0, "compensate": False, "scale_children": False, "seed": 3},
        {**FOREST, "exclusive": 0.5, "rank": 3, "correlation_scale": 0.5, "deviation_mean": 3.0},
        {"dimensions": 8, "n_features": 10, "roots": 0, "min_probability": 0.05},
    ],
    "superposition": [
        {"dimensions": 16, "n_features": 24, "active": 3.0},
        {"dimensions": 8, "n_features": 4, "active": 1.5, "decay": 0.7, "strength": "product", "noise": 0.1, "seed": 5},
        *({"dimensions": 12, "n_features": 20, "active": 3.0, "decay": 0.95, "firing": firing} for firing in FIRES),
        {"dimensions": 8, "n_features": 10, "active": 1.5, "firing": FIRES[4], "strength": "product", "noise": 0.1},
    ],
    "planted_map": [
        {"dimensions": 16, "n_features": 24, "active": 3.0, "d_out": 10, "n_targets": 20, "fan_out": 3},
        {"dimensions": 8, "n_features": 12, "active": 2.0, "noise": 0.1, "inhibitory": 0.5, "threshold": 0.1},
    ],
    "planted_pair": [
        {"dimensions": 16, "n_features": 24, "active": 3.0},
        {"dimensions": 8, "n_features": 13, "active": 2.0, "noise": 0.1, "shared": 0.3, "imbalance": 0.9},
    ],
}
CASES = [(kind, settings) for kind, examples in EXAMPLES.items() for settings in examples]


def name(case):
    kind, settings = case
    return "-".join([kind, *map(str, settings.get("firing", settings).values())])


@pytest.fixture(params=CASES, ids=name)
def case(request):
    kind, settings = request.param
    world = WORLDS[kind](**settings)
    by_batch = {"kind": "correlated", "form": "published"}.items() <= world.to_dict().get("firing", {}).items()
    return WorldCase(world, by_batch, world.bias != 0 if isinstance(world, Synth) else world.noise != 0)


@pytest.mark.parametrize(
    "module",
    [
        "world",
        "superposition",
        "synth.world",
        "planted_map",
        "planted_pair",
        "activations",
        "firing.base",
        "firing.correlated",
        "firing.hierarchy",
        "stories.world",
        "text.world",
    ],
)
def test_examples_in_docstrings_run(module):
    tested = doctest.testmod(importlib.import_module(f"unbraid.worlds.{module}"))
    assert tested.attempted > 0
    assert tested.failed == 0


def test_every_registered_world_has_an_example():
    assert {*EXAMPLES, "activations"} == set(WORLDS)  # activations have no truth: see test_activations.py
    assert {firing["kind"] for firing in FIRES} == set(FIRING)


@pytest.mark.parametrize("promise", battery.PROMISES, ids=lambda promise: promise.sentence)
def test_promises(case, promise):
    assert promise.check(case) is None
