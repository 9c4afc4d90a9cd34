"""Remember how active each feature has been, so that pruning spares the useful ones.

importance ← momentum · importance + (1-momentum) · mean over samples of |code|        from 1, also for a feature anew

corrected  at every step
published  only every so many steps, when pruning looks: a memory of 1/(1-momentum) steps becomes one of 10,000

What it does to the bar of a feature is the reader's: see correlation_pruning.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Forward, Mechanism, Memory, Signals


class MomentumImportance(Mechanism):
    momentum: float = Field(default=0.99, ge=0, le=1)
    every: int = Field(default=100, ge=1)
    form: Literal["corrected", "published"] = "corrected"
    writes: ClassVar[frozenset[str]] = frozenset({"importance"})

    def start(self, stack: Stack) -> Memory:
        steps = torch.zeros(stack.members, dtype=torch.int64)
        return {"importance": torch.ones_like(stack.encoder_bias), "steps": steps}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        return {"importance": memory["importance"]}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        importance, steps = memory["importance"], memory["steps"] + 1
        if self.form == "corrected" or int(steps[0]) % self.every == 0:
            activity = forward.together().sizes() / len(forward.x)
            importance = self.momentum * importance + (1 - self.momentum) * activity.to(importance.dtype)
        return {"importance": importance, "steps": steps}
