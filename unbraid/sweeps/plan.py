"""Which members train together: those equal in everything but their seed and their knobs, as one stack.

Baselines and pictures are made one by one; those equal in everything but their seed and their data share a folder.
Small models are taught together, which is faster, and larger ones one by one (`MODELS_TOGETHER`).
"""

import json
import os
from collections.abc import Sequence

from unbraid.config import Record, Tree, knobs
from unbraid.dictionaries.baselines import KMedoids
from unbraid.errors import Refusal
from unbraid.line.stages import BASELINE, DICTIONARY
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import Member
from unbraid.worlds.text import Text

STACK_BYTES = 2 << 30
"""Larger stacks are split; a constant, so that a run has the same stacks on every machine."""


MODELS_TOGETHER, SMALL_STEP = 16, 1 << 16
"""So many models are taught together where a batch of one has at most so many numbers (sequences × tokens × d_model).

Sixteen together took .53 of the time of one by one at 16 × 95 × 16 numbers, and 1.5 of it at 64 × 95 × 64, where each
has work enough for itself and fewer numbers stay in the cache (`make bench ONLY=models`).
"""


def plan(members: Sequence[Member]) -> list[list[Member]]:
    """The stacks, in the order their first members appear."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(json.dumps(_shared(member), sort_keys=True), []).append(member)
    stacks: list[list[Member]] = []
    for group in groups.values():
        most = _most_together(group)
        stacks += [group[start : start + most] for start in range(0, len(group), most)]
    return stacks


def _most_together(group: Sequence[Member]) -> int:
    first = group[0].experiment
    if first.is_taught:
        numbers = first.teaching.batch * first.asking.length * first.model.width
        return MODELS_TOGETHER if numbers <= SMALL_STEP else 1
    return max(1, STACK_BYTES // member_bytes(group[0])) if first.is_trained else len(group)


def member_bytes(member: Member) -> int:
    """About what one member takes: weights, gradients, two moments; what its rule holds; cosines with the truth."""
    if member.experiment.is_taught:
        return _model_bytes(member.experiment)
    if not member.experiment.is_trained:
        return _untrained_bytes(member.experiment)
    dictionary, dimensions = member.experiment.dictionary, member.experiment.dimensions
    features, codes = dictionary.features, dictionary.activation.codes_held
    batch, planted = member.experiment.training.batch, member.experiment.planted
    training = 8 * features * dimensions + codes * batch * features + 3 * batch * dimensions
    return 4 * (training + 3 * planted * features + planted * dimensions)


def refuse_too_large(members: Sequence[Member]) -> None:
    """Say before starting that a member cannot fit in this machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = max((_model_bytes(member.experiment) for member in members if member.experiment.is_line), default=0)
    taught = needed > memory or any(member.experiment.is_taught for member in members)
    if needed <= memory:  # what a line's dictionary takes is known from its model, which must fit first
        needed = max(member_bytes(member) for member in members)
    if needed > memory:
        smaller = "features, world.dimensions or samples in a batch or in data"
        if taught:
            smaller = "layers, a smaller d_model or d_ff, or fewer sequences in a batch"
        raise Refusal(
            f"one member of this size takes about {needed / 2**30:.1f} GiB and this machine has "
            f"{memory / 2**30:.1f} GiB; accepted: fewer {smaller}"
        )


def _model_bytes(experiment: Experiment) -> int:
    """Weights, gradients, two moments; and of a batch what each layer keeps to go back: streams, hidden, patterns.

    On a text every token has logits of the whole vocabulary.
    """
    model, world = experiment.model, experiment.asking
    sizes, words = model.sizes(world.length), len(world.vocabulary) if isinstance(world, Text) else 0
    weights, token = sizes.weights + 2 * words * model.width, sizes.kept + 3 * words
    return 4 * (4 * weights + experiment.teaching.batch * world.length * token)


def _untrained_bytes(experiment: Experiment) -> int:
    """The data, once as drawn and in double what is looked at; distances of all pairs of points; cosines."""
    samples, dimensions = experiment.data.samples, experiment.dimensions
    if experiment.baseline is None:
        return 12 * samples * dimensions
    looked_at = min(samples, experiment.baseline.points or samples)
    pairs = looked_at**2 if isinstance(experiment.baseline, KMedoids) else 0
    cosines = 3 * experiment.planted * experiment.baseline.features
    return 4 * (samples * dimensions + 4 * looked_at * dimensions + pairs + cosines)


def _shared(member: Member) -> Tree:
    """What members of one stack must have in common."""
    tree = member.experiment.tree()
    del tree["seed"]
    one = member.experiment
    parts: list[tuple[Record, Tree]] = []
    if one.is_taught:
        parts = [(one.teaching, tree["teaching"])]
        parts += [(constraint, tree["constraints"][name]) for name, constraint in one.constraining().items()]
    elif one.is_trained:
        parts = [(one.training, tree["training"])]
        parts += [(mechanism, tree["mechanisms"][name]) for name, mechanism in one.enabled().items()]
    else:
        del tree["data"]
    for record, part in parts:
        for knob in knobs(type(record)):
            part.pop(knob, None)
    unread = (DICTIONARY if one.baseline is not None else BASELINE) if one.is_line else ()
    return {name: value for name, value in tree.items() if name not in unread}
