"""Which pairs `pair_orthogonality` would select with the dictionary as it ended: how alike, and whether the same again.

selected_pair_cosine  mean cosine of the share of pairs with the largest, in batches of a training's size; its ceiling:
                      that of the planted truth's own codes, of as large a share of its pairs
pair_overlap_steps    between consecutive batches of a training's size; its chance: as many pairs chosen at random
pair_overlap_seeds    between a member and the next of its setting, on the same batch, features matched by direction

The share of pairs is the mechanism's; where `dynamic_pairs` decides how many are used, it is still that share.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch

from unbraid.codes import Codes
from unbraid.dictionaries.coactivation import find_pairs
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.mechanisms.pair_orthogonality import PairOrthogonality
from unbraid.dictionaries.stack import Stack
from unbraid.members import select_member
from unbraid.metrics import pairs
from unbraid.worlds import World

BATCHES = 8
MAX_FEATURES = 4096
"""Above this many, features are not matched between seeds: it would take minutes a pair of members."""

Columns = dict[str, list[float]]


@dataclass(frozen=True)
class PairScores:
    """Scores of every member by name, and their chance and ceiling where they have one."""

    values: Columns = field(default_factory=dict)
    chance: Columns = field(default_factory=dict)
    ceiling: Columns = field(default_factory=dict)


def pair_stability(
    stack: Stack, world: World, mechanism: PairOrthogonality, settings: Sequence[Hashable], steps: int, batch: int
) -> PairScores:
    """The scores of every member, with chance and ceiling.

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
    batches = [world.batch(steps + number, batch) for number in range(BATCHES)]
    own = [select_member(mechanism, m) for m in range(stack.members)]
    codes = [[encode(stack.member(m), each.x) for each in batches] for m in range(stack.members)]
    selected = [[_select(one, own[m]) for one in of_member] for m, of_member in enumerate(codes)]
    overlaps = [pairs.overlaps(by_batch, stack.features) for by_batch in selected]
    values = {
        "selected_pair_cosine": [_mean_cosine(of_member, own[m]) for m, of_member in enumerate(codes)],
        "pair_overlap_steps": [float(overlap.mean()) for overlap, _ in overlaps],
    }
    chance = {"pair_overlap_steps": [float(by_chance.mean()) for _, by_chance in overlaps]}
    if stack.features <= MAX_FEATURES:
        seeds = [_with_next(stack, m, selected, settings) for m in range(stack.members)]
        values["pair_overlap_seeds"] = [overlap for overlap, _ in seeds]
        chance["pair_overlap_seeds"] = [by_chance for _, by_chance in seeds]
    truth = [each.truth for each in batches] if world.has_truth else []
    ceiling = {"selected_pair_cosine": [_mean_cosine(truth, each) for each in own]} if truth else {}
    return PairScores(values, chance, ceiling)


def _select(codes: Codes, mechanism: PairOrthogonality) -> pairs.Pairs:
    coactive = find_pairs(codes)
    top = mechanism.select(coactive, coactive.how_many(mechanism.share, None))
    return torch.stack([top.first, top.second], 1).numpy()


def _mean_cosine(batches: Sequence[Codes], mechanism: PairOrthogonality) -> float:
    """Of the share of pairs with the largest cosines in each batch, whatever the mechanism selects by."""
    means = []
    for codes in batches:
        coactive = find_pairs(codes)
        counts = coactive.how_many(mechanism.share, None)
        top = coactive.top("cosine", counts)
        means.append(float(top.sum(top.score.abs(), 1)) / max(1, counts[0]))
    return sum(means) / len(means)


def _with_next(
    stack: Stack, m: int, selected: Sequence[Sequence[pairs.Pairs]], settings: Sequence[Hashable]
) -> tuple[float, float]:
    """The overlap with the next member of the same setting, the last with the first; NaN for one that is alone."""
    alike = [n for n, setting in enumerate(settings) if setting == settings[m]]
    following = alike[(alike.index(m) + 1) % len(alike)]
    if following == m:
        return float("nan"), float("nan")
    return pairs.overlap_between(
        selected[m][0], selected[following][0], stack.directions[m].cpu(), stack.directions[following].cpu()
    )
