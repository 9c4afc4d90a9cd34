"""Let the features that fire together be each other's neighbours (seed 003, run 8).

    together_ij ← momentum · together_ij + (1-momentum) · samples of the batch with both        fires_i alike

where it counts what would fire, before anything is inhibited.

corrected    i's neighbours are the features j with together_ij > share · fires_i: the most frequent, at most `radius`
published    those with together_ij > share, which depends on the size of the batch; i itself is counted among them, so
             one more is taken. (As written, the product was of samples, b × b, and would not have run; here it is of
             features. A partner without any history, whom ties could let in there, is left out.)

No f×f matrix: each feature keeps the `places` partners it has most history with, see `partners.py`. With radius 0 it
says nothing, and whoever reads `neighbours` goes on as without it.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.config import Knob
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.mechanisms.nearest import EMPTY, without
from unbraid.mechanisms.partners import follow


class AdaptiveNeighbourhoods(Mechanism):
    radius: int = Field(default=32, ge=0)
    share: Knob = Field(default=0.1, ge=0)
    momentum: float = Field(default=0.99, ge=0, lt=1)
    places: int = Field(default=64, ge=1)
    form: Literal["corrected", "published"] = "corrected"
    writes: ClassVar[frozenset[str]] = frozenset({"neighbours"})

    def start(self, stack: Stack) -> Memory:
        members, features = stack.members, stack.features
        together = torch.zeros(members, features, min(self.places, features))
        partners = torch.full(together.shape, EMPTY, dtype=torch.int32)
        return {"partners": partners, "together": together, "fires": torch.zeros(members, features)}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        partners, together = (memory[name][..., : self.radius] for name in ("partners", "together"))
        share, fires = torch.as_tensor(self.share).reshape(-1, 1, 1), memory["fires"][..., None]
        if self.form == "corrected":
            near = together > share * fires
        else:
            above = (memory["together"] > share).sum(-1, keepdim=True) + (fires > share)
            near = (together > 0) & (torch.arange(partners.shape[-1]) < above)
        listed = torch.where(near, partners, EMPTY)
        return {"neighbours": without(listed, memory["fires"] == 0)}  # whoever has never fired has just started anew

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        if self.radius == 0:
            return memory
        return follow(forward.would_fire or forward.codes, memory, self.momentum)  # silencing must not part neighbours
