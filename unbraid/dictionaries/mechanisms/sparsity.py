"""Make codes sparse by the L1 cost.

weight · mean over samples of  Σ_f |code_f|        (form per_sample)
the same, divided by the number of features        (form published, of the superposition study)

An activation may have something else than Σ|code| counted: jump-relu how many fire, gated Σ relu(gate).
"""

from typing import ClassVar, Literal

from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Signals
from unbraid.dictionaries.stack import Stack


class Sparsity(Mechanism):
    """The sparsity cost, an L1 penalty on codes unless the activation rule counts something else.

    It is weight · mean over samples of Σ|code|; of the number of features that fire, for `JumpRelu`; of Σ relu(gate),
    for `Gated`.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Sparsity(weight=0.15).form
    'per_sample'
    """

    weight: PerMemberFloat = Field(default=0.1, ge=0)
    """Weight of the cost against the squared error summed over dimensions; higher is sparser and shrinks codes more."""
    form: Literal["per_sample", "published"] = "per_sample"
    """per_sample: Σ|code| of a sample. published: divided by the number of features (superposition study)."""
    reads: ClassVar[frozenset[str]] = frozenset({"l1"})

    def penalty(self, forward: Forward, stack: Stack, signals: Signals) -> Float[Tensor, "m"]:
        cost = self.weight * signals.l1 * forward.counted().mean(-1)
        return cost / stack.features if self.form == "published" else cost
