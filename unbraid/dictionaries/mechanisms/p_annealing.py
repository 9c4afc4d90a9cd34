"""Anneal the sparsity cost from L1 towards counting: Σ|code|^p with p from 1 down (Karvonen et al. 2024).

p     = 1 before `begin` of the training, `end` after `until` of it, linear between
scale ← scale · Σ|code|^p before / Σ|code|^p after, of the batch in which p moves: what the cost weighs stays the same

L1 finds the sparse solutions but shrinks large codes; a small p hardly does.
"""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator

from unbraid.axes import Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.mechanisms.sparsity import powers
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError


class PAnnealing(Mechanism):
    """Lower the power of the sparsity cost from 1 (L1) during training, so that large codes are less shrunk.

    Needs `Sparsity`, and a rule whose cost counts codes (relu).

    Examples
    --------
    >>> import unbraid as ub
    >>> mechanisms = [ub.Sparsity(weight=0.1), ub.PAnnealing(end=0.3)]
    >>> sorted(ub.PAnnealing.writes)
    ['power', 'power_scale']
    """

    end: PerMemberFloat = Field(default=0.2, gt=0)
    """The power at the end of the annealing, at most 1; lower is nearer to counting what fires."""
    begin: float = Field(default=0.2, ge=0, le=1)
    """Share of the training after which the power begins to fall."""
    until: float = Field(default=0.8, ge=0, le=1)
    """Share of the training after which it has fallen."""
    writes: ClassVar[frozenset[str]] = frozenset({"power", "power_scale"})
    sharding: ClassVar[Literal["own", "gathered"] | None] = "own"

    @model_validator(mode="after")
    def check_shares(self) -> Self:
        if self.begin >= self.until:
            raise ValueError(f"begin is {self.begin} and until {self.until}; accepted: begin below until")
        return self

    def check_stack(self, name: str, stack: Stack) -> None:
        if not stack.activation.counts_codes:
            raise UserError(
                f"mechanisms.{name} anneals Σ|code|, and the activation has something else counted; "
                "accepted: an activation of kind relu, topk or batchtopk"
            )

    def start(self, stack: Stack) -> Memory:
        one = stack.encoder.new_ones(stack.members)
        return {"power": one, "scale": one.clone()}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        return {"power": memory["power"], "power_scale": memory["scale"]}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        done = (forward.moment.done - self.begin) / (self.until - self.begin)
        end = torch.as_tensor(self.end).to(memory["power"]).clamp_max(1)
        power = (1 + min(1.0, max(0.0, done)) * (end - 1)).expand_as(memory["power"]).clone()
        sizes = forward.codes.values.abs()
        before, after = (powers(sizes, p).sum((1, 2)) for p in (memory["power"], power))
        scale = memory["scale"] * torch.where(after > 0, before / after.clamp_min(1e-30), 1)
        return {"power": power, "scale": scale}

    def logged(self, memory: Memory) -> dict[str, Tensor]:
        return {"power": memory["power"]}
