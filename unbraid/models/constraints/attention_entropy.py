"""Make heads look at few tokens: the entropy of each row of the pattern, mean over a story's tokens, heads and stories.

    p = pattern at tokens that are not padding, summing to one again        H = -Σ p log(p + 1e-9)
    published   H
    corrected   H / log(keys in sight), over queries that see two or more: the share of what an even look would have

The published cost weighs the same pattern more in longer stories; shares are comparable between tasks. In training the
pattern is what is left after dropout, in both forms.
"""

from typing import Literal

from pydantic import Field

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import PerMemberFloat
from unbraid.models.constraints.base import EPSILON, Constraint, over_tokens


class AttentionEntropy(Constraint):
    """Penalise attention that is spread out: the entropy of each head's pattern.

    corrected: as a share of the largest possible entropy, from 0 to 1. published: in nats.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> uniform = torch.full((1, 1, 1, 4, 4), 0.25)  # member, sequence, head, query, key
    >>> mask = torch.ones(1, 4, dtype=torch.bool)
    >>> cost = ub.AttentionEntropy().cost(uniform, mask, keys=torch.full((1, 4), 4))
    >>> round(cost.item(), 4)
    1.0
    """

    weight: PerMemberFloat = Field(default=0.02, ge=0)
    """Factor of the cost in the loss; raising it sharpens attention more."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: normalised entropy, 0 to 1. published: in nats, as in the source's code."""

    def cost(
        self, pattern: Float[Tensor, "m b h t s"], mask: Bool[Tensor, "b t"], keys: Int[Tensor, "b t"]
    ) -> Float[Tensor, "m"]:
        p = pattern * mask[:, None, None, :]
        p = p / p.sum(-1, keepdim=True).clamp_min(EPSILON)
        entropy = -(p * (p + EPSILON).log()).sum(-1)
        if self.form == "published":
            return over_tokens(entropy, mask).mean((1, 2))
        share = entropy / keys.clamp_min(2).to(p.dtype).log()[:, None, :]
        return over_tokens(share, mask & (keys > 1)).mean((1, 2))
