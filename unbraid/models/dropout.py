"""Dropout whose draws come from each member's own seed, the step and the place, so that they can be made again.

x ← x · kept / (1 - rate)        kept ~ Bernoulli(1 - rate)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.randomness import stream


@dataclass(frozen=True)
class Dropout:
    rate: float
    seeds: Sequence[int]
    step: int

    def at(self, layer: str, place: str, x: Float[Tensor, "m *axes"]) -> Float[Tensor, "m *axes"]:
        draws = np.empty(x.shape, np.float32)
        for seed, own in zip(self.seeds, draws, strict=True):
            stream(seed, "dropout", self.step, layer + place).random(dtype=np.float32, out=own)
        kept = torch.from_numpy(draws).ge_(self.rate).to(x.dtype)
        return x * kept.div_(1 - self.rate)
