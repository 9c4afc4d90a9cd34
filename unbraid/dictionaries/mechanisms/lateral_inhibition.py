"""Let a strong feature weaken those near it: local competition (study "mechanisms", runs 7 and 8).

    strongest_j = max of a_i over j's inhibitors i
    a_j ← relu(a_j - strength · strongest_j)        where 0 < a_j < threshold · strongest_j

corrected    j's inhibitors are its `neighbours` where a mechanism writes those; else the `radius` features nearest in
             direction (the largest positive cosines of decoder rows), found anew every `every` steps
published    j's inhibitors are its block of `radius` consecutive features; of `neighbours`, only the last feature
             that counts j among its own, since there each overwrites what the one before it did to j

All features are weakened at once, from values as they were (`dictionaries/inhibition.py`). By default it acts in
training alone, and a trained dictionary encodes without it. With `in_use` the inhibitors of the last step stay with
the dictionary, are saved with it, and its `encode` inhibits too, as the source's did.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import PerMemberFloat
from unbraid.dictionaries import operations
from unbraid.dictionaries.inhibition import EMPTY, inhibit
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import INHIBITION, Stack

BLOCK_BYTES = 8 << 20
"""About how many cosines are made at a time."""


class LateralInhibition(Mechanism):
    """Local competition: a strong feature weakens its neighbours, in training and, if asked, in use.

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
    in_use: bool = False
    """Whether the trained dictionary inhibits too: it then keeps its inhibitors, and `encode` is sparser."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""
    reads: ClassVar[frozenset[str]] = frozenset({"neighbours", "nearest"})
    writes: ClassVar[frozenset[str]] = frozenset({"nearest"})
    whole_because: ClassVar[str] = "lets a feature silence those of other processes"

    @property
    def ordered(self) -> bool:
        return self.form == "published"

    def start(self, stack: Stack) -> Memory:
        if self.form == "published":
            return {}
        shape, device = (stack.members, stack.features, min(self.radius, stack.features)), stack.device
        nobody = torch.full(shape, EMPTY, dtype=torch.int32, device=device)
        return {"nearest": nobody, "steps": torch.zeros(stack.members, dtype=torch.int64, device=device)}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        if self.form == "published":
            return {"nearest": blocks(stack.features, self.radius).to(stack.device).repeat(stack.members, 1, 1)}
        nearest = memory["nearest"]
        return {"nearest": without(nearest, (nearest == EMPTY).all(-1))}  # a feature started anew is nobody's inhibitor

    def encode(self, codes: Codes, memory: Memory, stack: Stack, signals: Signals) -> Codes:
        inhibitors = self._inhibitors(signals)
        if inhibitors is None:
            return codes
        return replace(codes, values=inhibit(codes, inhibitors, self.strength, self.threshold))

    def use(self, stack: Stack, signals: Signals) -> Stack:
        inhibitors = self._inhibitors(signals)
        if not self.in_use or inhibitors is None:
            return stack
        strength, threshold = (
            torch.as_tensor(setting).to(stack.encoder).expand(stack.members).clone()
            for setting in (self.strength, self.threshold)
        )
        names = zip(INHIBITION, (inhibitors.int().clone(), strength, threshold), strict=True)
        return replace(stack, inhibition=dict(names))

    def _inhibitors(self, signals: Signals) -> Int[Tensor, "m f r"] | None:
        company = written(signals)
        if company is None:
            return signals.nearest
        return last_to_count(company) if self.form == "published" else company

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
    counting = (
        torch.arange(features, dtype=torch.int32, device=neighbours.device)[:, None].expand(neighbours.shape).flatten(1)
    )
    asked = torch.where(neighbours == EMPTY, features, neighbours).long().flatten(1)
    last = counting.new_full((members, features + 1), EMPTY)
    return last.scatter_reduce_(1, asked, counting, "amax")[:, :features, None].contiguous()


def nearest_by_cosine(directions: Float[Tensor, "m f d"], places: int) -> Int[Tensor, "m f r"]:
    """Of each unit row, the others with the largest positive cosines, in ascending order."""
    members, features, _ = directions.shape
    lists = torch.full((members, features, places), EMPTY, dtype=torch.int32, device=directions.device)
    size = max(1, BLOCK_BYTES // (4 * features))
    for member in range(members):
        rows = directions[member].float()
        for start in range(0, features, size):
            some = slice(start, start + size)
            cosines = rows[some] @ rows.T
            cosines.diagonal(start).fill_(-1)  # nobody is near itself
            lists[member, some] = operations.of(cosines).largest(cosines, places)
    return lists


def without(lists: Int[Tensor, "m f r"], gone: Bool[Tensor, "m f"]) -> Int[Tensor, "m f r"]:
    """The lists with these features taken out of them."""
    if not gone.any():
        return lists
    among = gone.gather(1, lists.clamp_min(0).long().flatten(1)).view(lists.shape)
    return lists.masked_fill(among, EMPTY)
