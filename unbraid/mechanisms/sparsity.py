"""Make codes sparse by the L1 cost.

weight · mean over samples of  Σ_f |code_f|        (form per_sample)
the same, divided by the number of features        (form published: seed 002)

An activation may have something else than Σ|code| counted: jump-relu how many fire, gated Σ relu(gate).
"""

from typing import ClassVar, Literal

from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.config import Knob
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Forward, Mechanism, Signals


class Sparsity(Mechanism):
    weight: Knob = Field(default=0.1, ge=0)
    form: Literal["per_sample", "published"] = "per_sample"
    reads: ClassVar[frozenset[str]] = frozenset({"l1"})

    def penalty(self, forward: Forward, stack: Stack, signals: Signals) -> Float[Tensor, "m"]:
        cost = self.weight * signals.l1 * forward.counted().mean(-1)
        return cost / stack.features if self.form == "published" else cost
