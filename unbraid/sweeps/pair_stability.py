"""Whether the pairs that `pair_orthogonality` selects are the same ones again, with the dictionary as it has ended.

pair_overlap_steps    between consecutive batches of a training's size; its chance: as many pairs chosen at random
pair_overlap_seeds    between a member and the next of its setting, on the same batch, features matched by direction

The share of pairs is the mechanism's own; where `dynamic_pairs` decides how many, it is that share all the same.
"""

import json
from collections.abc import Sequence

import torch

from unbraid.axes import Tensor
from unbraid.coactivation import find_pairs
from unbraid.dictionaries.lists import encode
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms import PairOrthogonality
from unbraid.members import one_of
from unbraid.metrics import pairs
from unbraid.sweeps.grid import Member
from unbraid.worlds import World

BATCHES = 8
MOST_FEATURES = 4096
"""Above this many, features are not matched between seeds: it would take minutes a pair of members."""

Columns = dict[str, list[float]]


def pair_stability(
    stack: Stack, world: World, mechanism: PairOrthogonality, group: Sequence[Member]
) -> tuple[Columns, Columns]:
    """Both scores member by member, and their chance."""
    training = group[0].experiment.training
    inputs = [world.batch(training.steps + place, training.batch).x for place in range(BATCHES)]
    chosen = [[_select(stack.member(m), one_of(mechanism, m), x) for x in inputs] for m in range(stack.members)]
    steps = [pairs.overlaps(each, stack.features) for each in chosen]
    values = {"pair_overlap_steps": [float(found.mean()) for found, _ in steps]}
    chance = {"pair_overlap_steps": [float(luck.mean()) for _, luck in steps]}
    if stack.features <= MOST_FEATURES:
        seeds = [_with_next(stack, m, chosen, group) for m in range(stack.members)]
        values["pair_overlap_seeds"] = [found for found, _ in seeds]
        chance["pair_overlap_seeds"] = [luck for _, luck in seeds]
    return values, chance


def _select(one: Stack, mechanism: PairOrthogonality, x: Tensor) -> pairs.Pairs:
    together = find_pairs(encode(one, x))
    top = mechanism.select(together, together.how_many(mechanism.share, None))
    return torch.stack([top.first, top.second], 1).numpy()


def _with_next(
    stack: Stack, m: int, chosen: Sequence[Sequence[pairs.Pairs]], group: Sequence[Member]
) -> tuple[float, float]:
    """The overlap with the next member of the same setting, the last with the first; NaN for one that is alone."""
    alike = [n for n, other in enumerate(group) if json.dumps(other.setting) == json.dumps(group[m].setting)]
    following = alike[(alike.index(m) + 1) % len(alike)]
    if following == m:
        return float("nan"), float("nan")
    return pairs.overlap_between(chosen[m][0], chosen[following][0], stack.directions[m], stack.directions[following])
