"""Let a strong feature weaken those near it: local competition (seed 003, runs 7 and 8).

    strongest_j = max of a_i over j's inhibitors i
    a_j ← relu(a_j - strength · strongest_j)        where 0 < a_j < threshold · strongest_j

corrected    j's inhibitors are its `neighbours` where a mechanism writes those; else the `radius` features nearest in
             direction (the largest positive cosines of decoder rows), found anew every `every` steps
published    j's inhibitors are its block of `radius` consecutive features; of `neighbours`, only the last feature
             that counts j among its own, since there each overwrites what the one before it did to j

All features are weakened at once, from values as they were. It acts in training alone: a trained dictionary encodes
without it (the seed inhibited in use as well).
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Int, Tensor
from unbraid.codes import Codes
from unbraid.config import Knob
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.inhibition import inhibit
from unbraid.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.mechanisms.nearest import EMPTY, nearest_by_cosine, without


class LateralInhibition(Mechanism):
    radius: int = Field(default=32, ge=1)
    strength: Knob = Field(default=0.3, ge=0)
    threshold: Knob = Field(default=0.5, ge=0, le=1)
    every: int = Field(default=100, ge=1)
    form: Literal["corrected", "published"] = "corrected"
    reads: ClassVar[frozenset[str]] = frozenset({"neighbours", "nearest"})
    writes: ClassVar[frozenset[str]] = frozenset({"nearest"})

    @property
    def ordered(self) -> bool:
        return self.form == "published"

    def start(self, stack: Stack) -> Memory:
        if self.form == "published":
            return {}
        nobody = torch.full((stack.members, stack.features, min(self.radius, stack.features)), EMPTY, dtype=torch.int32)
        return {"nearest": nobody, "steps": torch.zeros(stack.members, dtype=torch.int64)}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        if self.form == "published":
            return {"nearest": blocks(stack.features, self.radius).repeat(stack.members, 1, 1)}
        nearest = memory["nearest"]
        return {"nearest": without(nearest, (nearest == EMPTY).all(-1))}  # a feature started anew is nobody's inhibitor

    def encode(self, codes: Codes, stack: Stack, signals: Signals) -> Codes:
        inhibitors, company = signals.nearest, written(signals)
        if company is not None:
            inhibitors = last_to_count(company) if self.form == "published" else company
        if inhibitors is None:
            return codes
        return replace(codes, values=inhibit(codes, inhibitors, self.strength, self.threshold))

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        if self.form == "published":
            return memory
        nearest, steps = memory["nearest"], memory["steps"]
        if written(signals) is None and int(steps[0]) % self.every == 0:
            nearest = nearest_by_cosine(stack.decoder, nearest.shape[-1])
        return {"nearest": nearest, "steps": steps + 1}


def written(signals: Signals) -> Int[Tensor, "m f r"] | None:
    """The neighbours that a mechanism wrote, if it did."""
    neighbours = signals.neighbours
    return neighbours if neighbours is not None and neighbours.shape[-1] > 0 else None


def blocks(features: int, size: int) -> Int[Tensor, "f r"]:
    """Each feature's block of consecutive features."""
    size = min(size, features)
    first = torch.arange(features, dtype=torch.int32) // size * size
    block = first[:, None] + torch.arange(size, dtype=torch.int32)
    return torch.where(block < features, block, EMPTY)


def last_to_count(neighbours: Int[Tensor, "m f r"]) -> Int[Tensor, "m f one"]:
    """For each feature, the last one that has it among its neighbours."""
    members, features, _ = neighbours.shape
    counting = torch.arange(features, dtype=torch.int32)[:, None].expand(neighbours.shape).flatten(1)
    asked = torch.where(neighbours == EMPTY, features, neighbours).long().flatten(1)
    last = torch.full((members, features + 1), EMPTY, dtype=torch.int32)
    return last.scatter_reduce_(1, asked, counting, "amax")[:, :features, None].contiguous()
