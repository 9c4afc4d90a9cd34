"""Which members train together: those equal in everything but their seed and their knobs, as one stack.

Baselines and pictures are made one by one; those equal in everything but their seed and their data share a folder.
"""

import json
import os
from collections.abc import Sequence

from unbraid.config import Record, Tree, knobs
from unbraid.dictionaries.baselines import KMedoids
from unbraid.errors import Refusal
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import Member

STACK_BYTES = 2 << 30
"""Larger stacks are split; a constant, so that a run has the same stacks on every machine."""


def plan(members: Sequence[Member]) -> list[list[Member]]:
    """The stacks, in the order their first members appear."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(json.dumps(_shared(member), sort_keys=True), []).append(member)
    stacks: list[list[Member]] = []
    for group in groups.values():
        trained = group[0].experiment.is_trained
        most = max(1, STACK_BYTES // member_bytes(group[0])) if trained else len(group)
        stacks += [group[start : start + most] for start in range(0, len(group), most)]
    return stacks


def member_bytes(member: Member) -> int:
    """About what one member takes: weights, gradients, two moments; dense codes a few times; cosines with the truth."""
    if not member.experiment.is_trained:
        return _untrained_bytes(member.experiment)
    features, dimensions = member.experiment.dictionary.features, member.experiment.world.dimensions
    batch, planted = member.experiment.training.batch, len(member.experiment.world.directions)
    training = 8 * features * dimensions + 4 * batch * features + 3 * batch * dimensions
    return 4 * (training + 3 * planted * features + planted * dimensions)


def refuse_too_large(members: Sequence[Member]) -> None:
    """Say before starting that a member cannot fit in this machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = max(member_bytes(member) for member in members)
    if needed > memory:
        raise Refusal(
            f"one member of this size takes about {needed / 2**30:.1f} GiB and this machine has "
            f"{memory / 2**30:.1f} GiB; accepted: fewer features, world.dimensions or samples in a batch or in data"
        )


def _untrained_bytes(experiment: Experiment) -> int:
    """The data, once as drawn and in double what is looked at; distances of all pairs of points; cosines."""
    samples, dimensions = experiment.data.samples, experiment.world.dimensions
    if experiment.baseline is None:
        return 12 * samples * dimensions
    looked_at = min(samples, experiment.baseline.points or samples)
    pairs = looked_at**2 if isinstance(experiment.baseline, KMedoids) else 0
    cosines = 3 * len(experiment.world.directions) * experiment.baseline.features
    return 4 * (samples * dimensions + 4 * looked_at * dimensions + pairs + cosines)


def _shared(member: Member) -> Tree:
    """What members of one stack must have in common."""
    tree = member.experiment.tree()
    del tree["seed"]
    if not member.experiment.is_trained:
        del tree["data"]
        return tree
    parts: list[tuple[Record, Tree]] = [(member.experiment.training, tree["training"])]
    parts += [(mechanism, tree["mechanisms"][name]) for name, mechanism in member.experiment.enabled().items()]
    for record, part in parts:
        for knob in knobs(type(record)):
            part.pop(knob, None)
    return tree
