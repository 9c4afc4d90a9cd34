"""Make few heads do the work: the entropy of how the heads share it, over a whole batch.

    size = √(|what a head does at a token|² + 1e-9), mean over tokens, then over stories        p = size / Σ size
    published   H(p) = -Σ p log(p + 1e-9), of what heads read
    corrected   H(p) / log heads, of what heads write

What a head reads can be scaled (W_V c, W_O / c) without changing an answer, and so meet the published cost for nothing.
"""

import math
from typing import Literal

from pydantic import Field

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import PerMemberFloat
from unbraid.models.constraints.base import EPSILON, Constraint, over_tokens


class HeadUsage(Constraint):
    """Penalise even use of heads: the entropy of how much of the layer's output each head writes.

    corrected: as a share of its maximum. published: of how much each head reads, in nats.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> written = torch.ones(1, 2, 4, 3, 8)  # member, sequence, head, token, dimension: four heads, all alike
    >>> cost = ub.HeadUsage().cost(torch.ones(2, 3, dtype=torch.bool), written=written)
    >>> round(cost.item(), 4)
    1.0
    """

    weight: PerMemberFloat = Field(default=0.02, ge=0)
    """Factor of the cost in the loss; raising it concentrates the work on fewer heads."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: entropy of what heads write, as a share of its maximum. published: of what they read, in nats."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("output" if self.form == "published" else "written", "mask")

    def cost(
        self,
        mask: Bool[Tensor, "b t"],
        output: Float[Tensor, "m b h t e"] | None = None,
        written: Float[Tensor, "m b h t d"] | None = None,
    ) -> Float[Tensor, "m"]:
        done = output if output is not None else written
        assert done is not None, "one of what heads read and what they write is needed"
        size = (done.square().sum(-1) + EPSILON).sqrt()
        used = over_tokens(size, mask).mean(1).clamp_min(EPSILON)
        p = used / used.sum(-1, keepdim=True)
        entropy = -(p * (p + EPSILON).log()).sum(-1)
        return entropy if self.form == "published" else entropy / math.log(max(p.shape[-1], 2))
