"""Batch top-k (Bussmann et al. 2024): k features a sample fire on average, not in each.

training      the k·b largest pre-activations of the whole batch fire, where they are positive
threshold     ← momentum · threshold + (1-momentum) · the least that fired        (the first one is taken as it is)
evaluation    what exceeds the threshold fires; what is positive, before there is one
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activation import Activation, Fired, Named, Weights

NONE_YET = -1.0


class BatchTopK(Activation):
    codes_held: ClassVar[int] = 8
    kind: Literal["batchtopk"] = "batchtopk"
    k: int = Field(ge=1, le=1 << 24)
    momentum: float = Field(default=0.99, ge=0, lt=1)

    def memory(self, seeds: Sequence[int]) -> Named:
        return {"threshold": torch.full((len(seeds),), NONE_YET, dtype=torch.float64)}

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        threshold = weights["threshold"].clamp_min(0).to(pre.dtype)[:, None, None]
        return Codes.dense(torch.where(pre > threshold, pre, 0))

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        flat = pre.relu().flatten(1)
        values, places = flat.topk(self.k * pre.shape[1], dim=-1, sorted=False)
        codes = Codes.dense(torch.zeros_like(flat).scatter(-1, places, values).view_as(pre))
        return Fired(codes, memory={"threshold": self._follow(weights["threshold"], values.detach())})

    def _follow(self, threshold: Float[Tensor, "m"], fired: Float[Tensor, "m n"]) -> Float[Tensor, "m"]:
        least = fired.where(fired > 0, torch.inf).amin(-1).double()
        moved = torch.where(threshold < 0, least, self.momentum * threshold + (1 - self.momentum) * least)
        return torch.where(least.isfinite(), moved, threshold)
