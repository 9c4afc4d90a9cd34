"""Remember how active each feature has been, so that pruning spares the useful ones.

importance ← momentum · importance + (1-momentum) · mean over samples of |code|

corrected  at every step; from 0, and divided by 1 - momentum^age: a feature that starts anew is judged by its own time
published  only every so many steps, when pruning looks: a memory of 1/(1-momentum) steps becomes one of 10,000; from 1,
           also for a feature anew (the source: from the mean of all), which stays above what codes are for long

What it does to the bar of a feature is the reader's: see correlation_pruning.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack


class MomentumImportance(Mechanism):
    """Track how active each feature has been, so that `CorrelationPruning` spares the active ones.

    Examples
    --------
    >>> import unbraid as ub
    >>> mechanisms = [ub.CorrelationPruning(), ub.MomentumImportance()]
    >>> sorted(ub.MomentumImportance.writes)
    ['importance']
    """

    momentum: float = Field(default=0.99, ge=0, le=1)
    """How slowly the importance follows new batches, from 0 (the last batch alone) to nearly 1 (very slowly)."""
    every: int = Field(default=100, ge=1)
    """Steps between two updates of the published form; use the same as in `CorrelationPruning`."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""
    writes: ClassVar[frozenset[str]] = frozenset({"importance"})
    whole_because: ClassVar[str] = "ranks all features"

    def start(self, stack: Stack) -> Memory:
        zeros = torch.zeros_like(stack.encoder_bias)
        steps = torch.zeros(stack.members, dtype=torch.int64, device=stack.device)
        return {"importance": zeros + (self.form == "published"), "age": zeros, "steps": steps}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        if self.form == "published":
            return {"importance": memory["importance"]}
        return {"importance": memory["importance"] / (1 - self.momentum ** memory["age"]).clamp_min(1e-12)}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        importance, age, steps = memory["importance"], memory["age"] + 1, memory["steps"] + 1
        if self.form == "corrected" or int(steps[0]) % self.every == 0:
            activity = forward.together().sizes() / len(forward.x)
            importance = self.momentum * importance + (1 - self.momentum) * activity.to(importance)
        return {"importance": importance, "age": age, "steps": steps}
