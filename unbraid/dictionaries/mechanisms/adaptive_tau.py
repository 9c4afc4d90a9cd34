"""Let τ, the strength of `pair_orthogonality`, follow how strongly the top pairs fire together, towards a target.

τ ← clip(momentum · τ + (1-momentum) · τ · mean / target, lowest, highest)

It rises while the mean of the top pairs is above the target and falls while it is below.

corrected  the mean of cosines, each pair once: between 0 and 1, as the target is
published  the mean of the entries of |FᵀF|, each pair twice: sums far above the target, so τ is soon at its bound
"""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator

from unbraid.axes import Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack


class AdaptiveTau(Mechanism):
    """Adapt the strength τ of `PairOrthogonality` to how strongly the top pairs fire together, towards a target.

        τ ← clip(momentum · τ + (1 - momentum) · τ · mean / target, lowest, highest)

    The mean is of the cosines of the top pairs (corrected) or of their sums of products (published). The log has τ and
    this mean under `mechanisms.adaptive_tau`.

    Examples
    --------
    >>> import unbraid as ub
    >>> mechanisms = [ub.PairOrthogonality(), ub.AdaptiveTau(target=0.2)]
    >>> sorted(ub.AdaptiveTau.writes)
    ['tau']
    """

    initial: PerMemberFloat = Field(default=0.1, gt=0)
    """τ at the start, between `lowest` and `highest`."""
    target: PerMemberFloat = Field(default=0.1, gt=0)
    """Mean score of the top pairs that τ aims at, in cosines (corrected) or sums of products (published)."""
    momentum: float = Field(default=0.9, ge=0, le=1)
    """How slowly τ follows new batches, from 0 (the last batch alone) to nearly 1 (very slowly)."""
    lowest: float = Field(default=0.01, gt=0)
    """Smallest τ."""
    highest: float = Field(default=0.5, gt=0)
    """Largest τ."""
    share: PerMemberFloat = Field(default=0.001, gt=0, le=1)
    """Share of all pairs that the mean is over; use the same as in `PairOrthogonality`. More includes weaker pairs."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""
    reads: ClassVar[frozenset[str]] = frozenset({"pairs"})
    writes: ClassVar[frozenset[str]] = frozenset({"tau"})
    sharding: ClassVar[Literal["own", "gathered"] | None] = "own"

    @model_validator(mode="after")
    def begin_within_bounds(self) -> Self:
        if not self.lowest <= self.initial <= self.highest:
            raise ValueError(f"initial is {self.initial}; accepted: {self.lowest} to {self.highest}, the bounds of tau")
        return self

    def start(self, stack: Stack) -> Memory:
        tau = torch.as_tensor(self.initial).to(stack.encoder).expand(stack.members).clone()
        return {"tau": tau, "mean": torch.zeros_like(tau)}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        return {"tau": memory["tau"]}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        together, tau = forward.together(), memory["tau"]
        counts = together.how_many(self.share, signals.pairs)
        published = self.form == "published"
        top = together.top("raw" if published else "cosine", counts, copies=2 if published else 1)
        mean = top.sum(top.score.abs(), stack.members) / torch.tensor(counts).to(tau.device).clamp_min(1)
        moved = self.momentum * tau + (1 - self.momentum) * tau * (mean / self.target)
        return {"tau": moved.clamp(self.lowest, self.highest).to(tau.dtype), "mean": mean.to(tau.dtype)}

    def logged(self, memory: Memory) -> dict[str, Tensor]:
        return memory
