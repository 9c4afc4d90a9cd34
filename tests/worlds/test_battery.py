"""What every planted world promises, over the registry: list a world here and it is tested."""

import doctest
import importlib
import tomllib

import numpy as np
import pytest
import torch
from scipy import stats

from unbraid.config import check, to_toml
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
def world(request):
    kind, settings = request.param
    return WORLDS[kind](**settings)


def same(a, b):
    return torch.equal(a.x, b.x) and torch.equal(a.truth.to_dense(), b.truth.to_dense())


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


def test_its_settings_survive_toml(world):
    assert check(type(world), tomllib.loads(to_toml(world.to_dict())), "here") == world


def test_the_planted_directions_have_length_one(world):
    np.testing.assert_allclose(np.linalg.norm(world.directions.numpy(), axis=1), 1, rtol=1e-6)
    assert world.directions.shape[1] == world.dimensions


def test_a_batch_can_be_made_again_bit_for_bit(world):
    again = type(world)(**world.to_dict())
    for split, position in [("train", 0), ("train", 9), ("evaluation", 0)]:
        assert same(world.batch(position, 33, split), again.batch(position, 33, split))


def test_a_batch_does_not_depend_on_what_was_drawn_before(world):
    fresh = world.batch(5, 33)
    for position in range(5):
        world.batch(position, 33)
    assert same(world.batch(5, 33), fresh)


def test_another_position_split_or_seed_is_another_batch(world):
    base, other = world.batch(3, 33), type(world)(**{**world.to_dict(), "seed": world.seed + 1})
    assert not torch.equal(world.directions, other.directions)
    for batch in (world.batch(4, 33), world.batch(3, 33, "evaluation"), other.batch(3, 33)):
        assert not torch.equal(base.x, batch.x)
        assert not torch.equal(base.truth.to_dense() != 0, batch.truth.to_dense() != 0)


def test_the_default_split_is_train(world):
    assert same(world.batch(3, 33), world.batch(3, 33, "train"))


@pytest.mark.parametrize("size", [1, 2, 33])
def test_a_batch_has_the_size_asked_for(world, size):
    batch = world.batch(0, size)
    assert batch.x.shape == (size, world.dimensions)
    assert batch.truth.to_dense().shape == (1, size, len(world.directions))
    assert batch.x.dtype == torch.float32


def test_each_feature_fires_as_often_as_it_says(world):
    """Within exact binomial bounds that a true world leaves once in ten thousand features.

    Where every batch has rates of its own, one sample is taken from each of many.
    """
    by_batch = {"kind": "correlated", "form": "published"}.items() <= world.to_dict().get("firing", {}).items()
    batches, size = (3000, 1) if by_batch else (1, 20_000)
    counts = sum(world.batch(position, size).truth.counts()[0].numpy() for position in range(batches))
    low, high = stats.binom.interval(1 - 1e-4, batches * size, world.probabilities.numpy())
    assert ((low <= counts) & (counts <= high)).all()


def test_a_batch_called_exact_is_the_sum_of_what_fired(world):
    batch = world.batch(0, 33)
    close = torch.allclose(batch.truth.decode(world.directions[None])[0], batch.x, atol=1e-5)
    nothing_added = world.bias == 0 if isinstance(world, Synth) else world.noise == 0
    assert batch.exact == close == nothing_added


def test_no_feature_is_listed_twice_in_a_sample(world):
    truth = world.batch(0, 2000).truth
    assert (truth.l0() == (truth.to_dense() != 0).sum(-1)).all()
