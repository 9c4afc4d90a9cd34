"""Let a strong feature weaken those near it: local competition (study "mechanisms", runs 7 and 8).

    strongest_j = max of a_i over j's inhibitors i
    a_j ← relu(a_j - strength · strongest_j)        where 0 < a_j < threshold · strongest_j

corrected    j's inhibitors are its `neighbours` where a mechanism writes those; else the `radius` features nearest in
             direction (the largest positive cosines of decoder rows), found anew every `every` steps
published    j's inhibitors are its block of `radius` consecutive features; of `neighbours`, only the last feature
             that counts j among its own, since there each overwrites what the one before it did to j

All features are weakened at once, from values as they were. It acts in training alone: a trained dictionary encodes
without it (the source inhibited in use as well).

`inhibit_dense` is the formula in torch, for every dtype. In float32 a loop over what fired does the same; its cost is
that of looking up the inhibitors of what fired, and its gradients are

    ∂/∂a_j ← g_j unless a_j was silenced        ∂/∂a_strongest ← -strength · g_j where a_j was weakened and still fires
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numba import prange
from pydantic import Field

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import PerMemberFloat
from unbraid.dictionaries import kernels
from unbraid.dictionaries.kernels import compiled
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack

EMPTY = -1
"""What a place of a list holds when nobody is in it."""
BLOCK_BYTES = 8 << 20
"""About how many cosines are made at a time."""

SAMPLES = 64
"""How many samples one thread takes at a time."""
NOBODY = -1


class LateralInhibition(Mechanism):
    """Local competition in training: a strong feature weakens its neighbours. A trained dictionary encodes without it.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.LateralInhibition(radius=8, strength=0.5).threshold
    0.5
    """

    radius: int = Field(default=32, ge=1)
    """Number of inhibitors of a feature: its nearest in direction (published: its block of consecutive features)."""
    strength: PerMemberFloat = Field(default=0.3, ge=0)
    """Share of the strongest inhibitor's value that is subtracted; higher sets more features to 0."""
    threshold: PerMemberFloat = Field(default=0.5, ge=0, le=1)
    """A feature is weakened where it is below this share of its strongest inhibitor; higher weakens more often."""
    every: int = Field(default=100, ge=1)
    """Steps between two searches for the nearest features; lower is more current and slower."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""
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


def inhibit(
    codes: Codes, inhibitors: Int[Tensor, "m f r"], strength: Tensor | float, threshold: Tensor | float
) -> Float[Tensor, "m b k"]:
    """The values of these codes, weakened."""
    values, members = codes.values, len(codes.values)
    strengths, thresholds = (
        torch.as_tensor(setting).to(values.dtype).expand(members) for setting in (strength, threshold)
    )
    if values.dtype == torch.float32:
        return _Inhibit.apply(values, codes.features, inhibitors, strengths, thresholds)  # pyright: ignore[reportReturnType]
    dense = inhibit_dense(codes.to_dense(), inhibitors, strengths, thresholds)
    if codes.features is None:
        return dense
    return torch.where(values > 0, dense.gather(-1, codes.features.long()), values)


def inhibit_dense(
    values: Float[Tensor, "m b f"],
    inhibitors: Int[Tensor, "m f r"],
    strength: Float[Tensor, "m"],
    threshold: Float[Tensor, "m"],
) -> Float[Tensor, "m b f"]:
    strongest = torch.zeros_like(values)
    for inhibitor in inhibitors.unbind(-1):
        theirs = values.gather(-1, inhibitor.clamp_min(0).long()[:, None].expand_as(values))
        theirs = torch.where((inhibitor >= 0)[:, None], theirs, 0)
        strongest = torch.where(theirs > strongest, theirs, strongest)
    weak = (values > 0) & (values < threshold[:, None, None] * strongest)
    return torch.where(weak, (values - strength[:, None, None] * strongest).relu(), values)


class _Inhibit(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, features: Tensor | None, inhibitors: Tensor, *per_member_fields: Tensor
    ) -> Tensor:
        weakened, by = torch.empty(values.shape), torch.empty(values.shape, dtype=torch.int32)
        listed = np.empty((0, 0, 0), np.int32) if features is None else features.int().contiguous().numpy()
        strength, threshold = (knob.contiguous().numpy() for knob in per_member_fields)
        lists = inhibitors.int().contiguous().numpy()
        weaken(listed, values.contiguous().numpy(), lists, strength, threshold, weakened.numpy(), by.numpy())
        ctx.save_for_backward(weakened, by, per_member_fields[0])
        return weakened

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        weakened, by, strength = ctx.saved_tensors
        in_values = torch.empty(weakened.shape)
        given = gradients[0].contiguous().numpy()
        carry_back(given, weakened.numpy(), by.numpy(), strength.contiguous().numpy(), in_values.numpy())
        return in_values, None, None, None, None


@compiled(parallel=True)
def weaken(features, values, inhibitors, strength, threshold, weakened, by):
    """Write the weakened values, and which slot weakened each; without features, slot j is feature j."""
    members, samples, slots = values.shape
    width = inhibitors.shape[1]
    dense = features.shape[0] == 0
    parts = (samples + SAMPLES - 1) // SAMPLES
    for part in prange(members * parts):
        m, first = part // parts, part % parts * SAMPLES
        slot_of = np.arange(width).astype(np.int32) if dense else np.full(width, NOBODY, np.int32)
        for b in range(first, min(first + SAMPLES, samples)):
            row = values[m, b]
            if not dense:
                for k in range(slots):
                    if row[k] > 0:
                        slot_of[features[m, b, k]] = k
            for k in range(slots):
                value, found, strongest = row[k], NOBODY, np.float32(0.0)
                if value > 0:
                    feature = k if dense else features[m, b, k]
                    for r in range(inhibitors.shape[2]):
                        one = inhibitors[m, feature, r]
                        slot = slot_of[one] if one >= 0 else NOBODY
                        if slot >= 0 and row[slot] > strongest:
                            found, strongest = slot, row[slot]
                    if value < threshold[m] * strongest:
                        value = max(value - strength[m] * strongest, np.float32(0.0))
                    else:
                        found = NOBODY
                weakened[m, b, k], by[m, b, k] = value, found
            if not dense:
                for k in range(slots):
                    if row[k] > 0:
                        slot_of[features[m, b, k]] = NOBODY


@compiled(parallel=True)
def carry_back(gradients, weakened, by, strength, found):
    """Gradients in the values from those in the weakened values."""
    members, samples, slots = gradients.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        row = found[m, b]
        row[:] = 0
        for k in range(slots):
            slot, gradient = by[m, b, k], gradients[m, b, k]
            if slot == NOBODY:
                row[k] += gradient
            elif weakened[m, b, k] > 0:
                row[k] += gradient
                row[slot] -= strength[m] * gradient


def nearest_by_cosine(directions: Float[Tensor, "m f d"], places: int) -> Int[Tensor, "m f r"]:
    """Of each unit row, the others with the largest positive cosines, in no order."""
    members, features, _ = directions.shape
    lists = np.full((members, features, places), EMPTY, np.int32)
    values, counts = np.empty((features, places), np.float32), np.zeros(features, np.int64)
    no_bias, size = np.zeros(features, np.float32), max(1, BLOCK_BYTES // (4 * features))
    for member in range(members):
        rows = directions[member].float()
        for start in range(0, features, size):
            some = slice(start, start + size)
            cosines = rows[some] @ rows.T
            cosines.diagonal(start).fill_(-1)  # nobody is near itself
            kernels.append_largest(cosines.numpy(), no_bias, lists[member, some], values[some], counts[some])
    return torch.from_numpy(lists)


def without(lists: Int[Tensor, "m f r"], gone: Bool[Tensor, "m f"]) -> Int[Tensor, "m f r"]:
    """The lists with these features taken out of them."""
    if not gone.any():
        return lists
    among = gone.gather(1, lists.clamp_min(0).long().flatten(1)).view(lists.shape)
    return lists.masked_fill(among, EMPTY)
