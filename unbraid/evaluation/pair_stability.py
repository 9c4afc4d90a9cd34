"""Whether `pair_orthogonality` would select the same pairs again, with the dictionary as it ended.

pair_overlap_steps    between consecutive batches of a training's size; its chance: as many pairs chosen at random
pair_overlap_seeds    between a member and the next of its setting, on the same batch, features matched by direction

The share of pairs is the mechanism's; where `dynamic_pairs` decides how many are used, it is still that share.
"""

from collections.abc import Hashable, Sequence

import torch

from unbraid.axes import Tensor
from unbraid.dictionaries.coactivation import find_pairs
from unbraid.dictionaries.lists import encode
from unbraid.dictionaries.mechanisms.pair_orthogonality import PairOrthogonality
from unbraid.dictionaries.stack import Stack
from unbraid.members import select_member
from unbraid.metrics import pairs
from unbraid.worlds import World

BATCHES = 8
MAX_FEATURES = 4096
"""Above this many, features are not matched between seeds: it would take minutes a pair of members."""

Columns = dict[str, list[float]]


def pair_stability(
    stack: Stack, world: World, mechanism: PairOrthogonality, settings: Sequence[Hashable], steps: int, batch: int
) -> tuple[Columns, Columns]:
    """Both scores of every member, and their chance.

    Parameters
    ----------
    stack
        Trained dictionaries.
    world
        What they were trained on.
    mechanism
        Selects the pairs.
    settings
        The setting of each member; members of one setting differ in their seed only.
    steps, batch
        Steps of the training, after which batches are drawn, and samples in each.
    """
    inputs = [world.batch(steps + number, batch).x for number in range(BATCHES)]
    selected = [
        [_select(stack.member(m), select_member(mechanism, m), x) for x in inputs] for m in range(stack.members)
    ]
    overlaps = [pairs.overlaps(by_batch, stack.features) for by_batch in selected]
    values = {"pair_overlap_steps": [float(overlap.mean()) for overlap, _ in overlaps]}
    chance = {"pair_overlap_steps": [float(by_chance.mean()) for _, by_chance in overlaps]}
    if stack.features <= MAX_FEATURES:
        seeds = [_with_next(stack, m, selected, settings) for m in range(stack.members)]
        values["pair_overlap_seeds"] = [overlap for overlap, _ in seeds]
        chance["pair_overlap_seeds"] = [by_chance for _, by_chance in seeds]
    return values, chance


def _select(member: Stack, mechanism: PairOrthogonality, x: Tensor) -> pairs.Pairs:
    coactive = find_pairs(encode(member, x))
    top = mechanism.select(coactive, coactive.how_many(mechanism.share, None))
    return torch.stack([top.first, top.second], 1).numpy()


def _with_next(
    stack: Stack, m: int, selected: Sequence[Sequence[pairs.Pairs]], settings: Sequence[Hashable]
) -> tuple[float, float]:
    """The overlap with the next member of the same setting, the last with the first; NaN for one that is alone."""
    alike = [n for n, setting in enumerate(settings) if setting == settings[m]]
    following = alike[(alike.index(m) + 1) % len(alike)]
    if following == m:
        return float("nan"), float("nan")
    return pairs.overlap_between(
        selected[m][0], selected[following][0], stack.directions[m], stack.directions[following]
    )
