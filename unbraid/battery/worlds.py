"""What every world promises, and through the superposition that it fires in, every firing rule."""

import tomllib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy import stats

from unbraid.battery.promise import Example, Promise
from unbraid.config import check, to_toml
from unbraid.worlds import WORLDS, Batch, Superposition, World


@dataclass(frozen=True)
class WorldCase:
    """A world, and what to know of it: whether every batch has firing rates of its own."""

    world: World
    rates_by_batch: bool = False
    added: bool | None = field(default=None)
    """Whether something is added to the sum of what fired; None: where the world has a `noise` that is not 0."""


def world_cases(name: str, example: Example) -> dict[str, WorldCase]:
    return {name: WorldCase(WORLDS[name](**example.settings))}


def firing_cases(name: str, example: Example) -> dict[str, WorldCase]:
    """In superpositions of few features and of more."""
    firing: Any = {"kind": name, **example.settings}
    few = Superposition(dimensions=8, n_features=10, active=1.5, firing=firing, strength="product", noise=0.1)
    more = Superposition(dimensions=12, n_features=20, active=3.0, decay=0.95, firing=firing)
    return {"ten features": WorldCase(few), "twenty features": WorldCase(more)}


def same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.x, b.x) and torch.equal(a.truth.to_dense(), b.truth.to_dense())


def survives_toml(case: WorldCase) -> None:
    world = case.world
    assert check(type(world), tomllib.loads(to_toml(world.to_dict())), "here") == world


def directions_have_length_one(case: WorldCase) -> None:
    directions = case.world.directions
    assert directions.shape[1] == case.world.dimensions, f"directions have {directions.shape[1]} dimensions"
    np.testing.assert_allclose(np.linalg.norm(directions.numpy(), axis=1), 1, rtol=1e-6)


def batches_can_be_made_again(case: WorldCase) -> None:
    world = case.world
    again = type(world)(**world.to_dict())
    for split, position in [("train", 0), ("train", 9), ("evaluation", 0)]:
        made, other = world.batch(position, 33, split), again.batch(position, 33, split)
        assert same(made, other), f"batch {position} of {split} is another when it is made again"


def batches_do_not_depend_on_others(case: WorldCase) -> None:
    fresh = case.world.batch(5, 33)
    for position in range(5):
        case.world.batch(position, 33)
    assert same(case.world.batch(5, 33), fresh), "a batch is another after others were drawn"


def positions_splits_and_seeds_differ(case: WorldCase) -> str | None:
    world = case.world
    base = world.batch(3, 33)
    others = {"another position": world.batch(4, 33), "another split": world.batch(3, 33, "evaluation")}
    if "seed" in type(world).model_fields:
        settings = world.to_dict()
        other = type(world)(**{**settings, "seed": settings["seed"] + 1})
        assert not torch.equal(world.directions, other.directions), "another seed plants the same directions"
        others["another seed"] = other.batch(3, 33)
    for what, batch in others.items():
        assert not torch.equal(base.x, batch.x), f"{what} draws the same batch"
        if world.has_truth:
            drawn = torch.equal(base.truth.to_dense() != 0, batch.truth.to_dense() != 0)
            assert not drawn, f"in {what} the same features fire"
    return None


def batches_have_their_shapes(case: WorldCase) -> None:
    world = case.world
    assert same(world.batch(3, 33), world.batch(3, 33, "train")), "the default split is not train"
    for size in (1, 2, 33):
        batch = world.batch(0, size)
        assert batch.x.shape == (size, world.dimensions), f"x is {tuple(batch.x.shape)}, of {size} samples asked for"
        planted = (1, size, len(world.directions))
        assert batch.truth.to_dense().shape == planted, f"truth is {tuple(batch.truth.to_dense().shape)}, not {planted}"
        assert batch.x.dtype == torch.float32, f"x is {batch.x.dtype}, not float32"


def features_fire_at_their_rates(case: WorldCase) -> str | None:
    """Within exact binomial bounds that a true world leaves once in ten thousand features.

    Where every batch has rates of its own, one sample is taken from each of many.
    """
    if not case.world.has_truth:
        return "nothing is planted"
    batches, size = (3000, 1) if case.rates_by_batch else (1, 20_000)
    drawn = [case.world.batch(position, size).truth.counts()[0].numpy() for position in range(batches)]
    counts = np.sum(drawn, axis=0)
    low, high = stats.binom.interval(1 - 1e-4, batches * size, case.world.probabilities.numpy())
    off = np.flatnonzero((counts < low) | (counts > high))
    assert not len(off), f"feature {off[0]} fired {counts[off[0]]} times, not {low[off[0]]:.0f} to {high[off[0]]:.0f}"
    return None


def exact_means_exact(case: WorldCase) -> str | None:
    if not case.world.has_truth:
        return "nothing is planted"
    batch = case.world.batch(0, 33)
    close = torch.allclose(batch.truth.decode(case.world.directions[None])[0], batch.x, atol=1e-5)
    added = bool(case.world.to_dict().get("noise", 0)) if case.added is None else case.added
    assert batch.exact == close, f"a batch says exact = {batch.exact}, and its sum is {'' if close else 'not '}x"
    assert close != added, "something is added where nothing should be, or the other way round"
    return None


def nothing_is_listed_twice(case: WorldCase) -> None:
    truth = case.world.batch(0, 2000).truth
    assert (truth.l0() == (truth.to_dense() != 0).sum(-1)).all(), "a feature is listed twice in a sample"


PROMISES: tuple[Promise[WorldCase], ...] = (
    Promise("settings survive TOML", survives_toml),
    Promise("planted directions have length one", directions_have_length_one),
    Promise("a batch can be made again, bit for bit", batches_can_be_made_again),
    Promise("a batch does not depend on what was drawn before", batches_do_not_depend_on_others),
    Promise("another position, split or seed is another batch", positions_splits_and_seeds_differ),
    Promise("a batch has the shapes asked for", batches_have_their_shapes),
    Promise("each feature fires as often as the world says", features_fire_at_their_rates),
    Promise("a batch called exact is the sum of what fired", exact_means_exact),
    Promise("no feature is listed twice in a sample", nothing_is_listed_twice),
)
