"""Steer the sparsity weight so that a wanted share of the features fires (study "mechanisms", run 6).

corrected    l1 ← clip(l1 · (1 + rate · clip(active / target - 1, -1, 1)), lowest, highest)
             active: the share of features that fire in a sample, a mean with momentum, corrected for its age
published    l1 ← clip(l1 · (1 + rate · (zeros - target)), lowest, highest)
             zeros: the share that does not, so the sparser the codes the higher the weight; not corrected for age

`l1` is a factor on the weight of `sparsity`. The source held the weight, .04 at first, within
[.01, .2]: a factor in [¼, 5].
"""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from unbraid.axes import Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack


class AdaptiveL1(Mechanism):
    """Adjust the weight of `Sparsity` until a target share of the features fires.

    Examples
    --------
    >>> import unbraid as ub
    >>> mechanisms = [ub.Sparsity(weight=0.1), ub.AdaptiveL1(target=0.05)]
    >>> sorted(ub.AdaptiveL1.writes)
    ['l1']
    """

    target: PerMemberFloat = Field(default=0.1, gt=0, lt=1)
    """Share of the features that should fire in a sample (published: share that should not); L0 = target · features."""
    rate: PerMemberFloat = Field(default=0.1, ge=0, lt=1)
    """Largest relative change of the weight in a step; higher steers faster and may oscillate."""
    momentum: float = Field(default=0.99, ge=0, lt=1)
    """How slowly the measured share follows new batches, from 0 (the last batch alone) to nearly 1 (very slowly)."""
    lowest: float = Field(default=0.25, gt=0)
    """Lower bound of the factor on the weight."""
    highest: float = Field(default=5.0, gt=0)
    """Upper bound of the factor on the weight."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""
    writes: ClassVar[frozenset[str]] = frozenset({"l1"})
    sharding: ClassVar[Literal["own", "gathered"] | None] = "own"

    @model_validator(mode="after")
    def have_room_between_bounds(self) -> Self:
        if self.lowest > self.highest:
            raise ValueError(f"lowest is {self.lowest} and highest {self.highest}; accepted: lowest at most highest")
        return self

    def start(self, stack: Stack) -> Memory:
        zero = stack.encoder.new_zeros(stack.members)
        return {"factor": zero + 1, "active": zero, "steps": zero.clone()}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        return {"l1": memory["factor"]}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        now = forward.codes.l0().to(memory["active"].dtype).mean(-1) / stack.features
        if self.form == "published":
            now = 1 - now
        steps, active = memory["steps"] + 1, memory["active"].lerp(now, 1 - self.momentum)
        if self.form == "published":
            error = active - self.target
        else:
            error = (active / (1 - self.momentum**steps) / self.target - 1).clamp(-1, 1)
        factor = (memory["factor"] * (1 + self.rate * error)).clamp(self.lowest, self.highest)
        return {"factor": factor, "active": active, "steps": steps}
