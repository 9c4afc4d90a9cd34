"""What a run will take, before anything of it runs: stages, memory, disk, and time on so many machines.

Time rests on each stage's own guess, corrected by what stages of its kind took against their guess, where the cache has
any that were made from beginning to end:

    seconds of a stage = guess · (taken by its kind + PRIOR · rate of all) / (guessed of its kind + PRIOR)

Stages are then laid out as an executor would: inputs first, each on a machine with as many free threads as it takes.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.pipeline.executors import Needs
from unbraid.pipeline.expand import Plan
from unbraid.pipeline.run import stage_needs, wanted_stages
from unbraid.pipeline.stage import Stage, in_order
from unbraid.progress import PRIOR
from unbraid.storage.cache import Cache
from unbraid.storage.checksums import is_sealed
from unbraid.storage.files import read_checksums

CHECKPOINTS = 2
"""So many of a stage at work are on disk."""


@dataclass(frozen=True)
class Forecast:
    """What a run takes; bytes and seconds."""

    members: int
    settings: int
    stacks: int
    stages: dict[str, tuple[int, int]]
    """By kind: how many there are, and how many of them the cache has."""
    memory: int
    """Of the stack that takes most, without what Python and torch take themselves."""
    disk: int
    """What the run and the cache grow by, and the checkpoints of what is at work meanwhile."""
    seconds: dict[int, float]
    """On so many machines like this one."""
    threads: int
    measured: dict[str, tuple[int, float]]
    """By kind: how many stages the time rests on, and what they took against their guess."""

    def to_dict(self) -> JsonDict:
        stages = {kind: {"all": all_of, "made": made} for kind, (all_of, made) in self.stages.items()}
        measured = {kind: {"stages": count, "rate": rate} for kind, (count, rate) in self.measured.items()}
        counts = {"members": self.members, "settings": self.settings, "stacks": self.stacks, "stages": stages}
        sizes = {"memory_bytes": self.memory, "disk_bytes": self.disk, "threads": self.threads}
        seconds = {str(machines): round(value, 1) for machines, value in self.seconds.items()}
        return {**counts, **sizes, "seconds": seconds, "measured": measured}


def forecast(plan: Plan, cache: Path, machines: int = 1) -> Forecast:
    """What a configuration takes on this machine and on so many like it; stages are looked for in this cache."""
    if machines < 1:
        raise UserError(f"--on {machines} is no number of machines; accepted: 1 or more")
    stages, needs, kept = in_order(wanted_stages(plan)), stage_needs(plan), Cache(cache)
    missing = in_order(wanted_stages(plan), lambda stage: is_sealed(kept.folder(stage.key)))
    measured = measured_rates(cache, {stage.kind for stage in stages})
    seconds = corrected_seconds(missing, measured)
    threads = torch.get_num_threads()
    spans = {n: makespan(missing, seconds, needs, n, threads) for n in sorted({1, machines})}
    left = {stage.key for stage in missing}
    return Forecast(
        members=len(plan.members),
        settings=len({str(member.setting) for member in plan.members}),
        stacks=len(plan.stacks),
        stages=_by_kind(stages, left),
        memory=max(need.memory for need in needs.values()),
        disk=_disk(plan, missing, machines * threads),
        seconds=spans,
        threads=threads,
        measured={kind: (count, taken / guessed) for kind, (count, taken, guessed) in measured.items()},
    )


def _by_kind(stages: Sequence[Stage], left: set[str]) -> dict[str, tuple[int, int]]:
    every, made = Counter(stage.kind for stage in stages), Counter(s.kind for s in stages if s.key not in left)
    return {kind: (count, made[kind]) for kind, count in every.items()}


def _disk(plan: Plan, missing: Sequence[Stage], at_once: int) -> int:
    """In the cache what is missing, in the run copies of what it gets, beside them checkpoints of what is at work."""
    copied = [stage for stack in plan.stacks for stage in stack.first.copied(stack.first.stages(stack))]
    saved = sorted((stage.saved for stage in missing), reverse=True)[:at_once]
    return sum(stage.disk for stage in [*missing, *copied]) + CHECKPOINTS * sum(saved)


def measured_rates(cache: Path, kinds: set[str]) -> dict[str, tuple[int, float, float]]:
    """Of each of these kinds how many stages the cache has that were timed, and their seconds, taken and guessed."""
    found: dict[str, tuple[int, float, float]] = {}
    for folder in cache.glob("[!.]*-*"):
        if folder.name.rpartition("-")[0] in kinds and is_sealed(folder):
            facts = read_checksums(folder)
            if facts.get("seconds") and facts.get("guess"):
                count, taken, guessed = found.get(facts["kind"], (0, 0.0, 0.0))
                found[facts["kind"]] = count + 1, taken + facts["seconds"], guessed + facts["guess"]
    return found


def corrected_seconds(stages: Sequence[Stage], measured: Mapping[str, tuple[int, float, float]]) -> dict[str, float]:
    """The guess of each stage, by its key, times what its kind took against guesses."""
    taken, guessed = (sum(each[part] for each in measured.values()) for part in (1, 2))
    overall = (taken + PRIOR) / (guessed + PRIOR)
    rates = {kind: (taken + PRIOR * overall) / (guessed + PRIOR) for kind, (_, taken, guessed) in measured.items()}
    return {stage.key: stage.task().seconds * rates.get(stage.kind, overall) for stage in stages}


def makespan(
    stages: Sequence[Stage], seconds: Mapping[str, float], needs: Mapping[str, Needs], machines: int, threads: int
) -> float:
    """When the last of these is done, where each begins as soon as its inputs are there and a machine has room."""
    free, now = [threads] * machines, 0.0
    waiting = {stage.key: stage for stage in stages}
    running: list[tuple[float, str, int, int]] = []
    at_work = set(waiting)  # keys that are not made yet
    while waiting or running:
        for key, stage in list(waiting.items()):
            taken = min(needs[key].threads, threads)
            machine = max(range(machines), key=free.__getitem__)
            if free[machine] == 0:
                break
            if free[machine] >= taken and not any(other.key in at_work for other in stage.inputs):
                free[machine] -= taken
                heapq.heappush(running, (now + seconds[key], key, machine, taken))
                del waiting[key]
        now, key, machine, taken = heapq.heappop(running)
        free[machine] += taken
        at_work.discard(key)
    return now
