"""Push heads to do different things: the squared cosine between what any two heads do, in the mean over a story.

    published   mean over b, h, h' of (Z_b Z_bᵀ - I)²    rows of Z_b: what a head reads, mean over tokens, at length one
    corrected   mean over b and pairs h < h' of cos²     between what the heads write, mean over tokens

What a head reads is in coordinates of its own: turning them (W_V R, Rᵀ W_O) changes no answer and changes the published
cost, which can so be met without the heads doing anything else. What heads write shares one space.
"""

from typing import Literal

import torch
from pydantic import Field
from torch.nn.functional import normalize

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import PerMemberFloat
from unbraid.models.constraints.base import Constraint, over_tokens, pairs


class Orthogonality(Constraint):
    """Penalise heads that write in the same direction: the squared cosine between any two.

    corrected: of what heads write. published: of what they read, each in coordinates of its own, so that it does not
    reliably lower the cosine of what they write.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> written = torch.eye(4)[None, None, :, None]  # member, sequence, head, token, dimension: orthogonal heads
    >>> ub.Orthogonality().cost(torch.ones(1, 1, dtype=torch.bool), written=written).tolist()
    [0.0]
    """

    weight: PerMemberFloat = Field(default=0.1, ge=0)
    """Factor of the cost in the loss; raising it pushes heads apart more."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: cosines of what heads write, over pairs. published: of what they read, over the whole matrix."""

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
        z = normalize(over_tokens(done, mask), dim=-1)
        cosines = z @ z.mT
        if self.form == "published":
            return (cosines - torch.eye(z.shape[2]).to(z)).square().mean((1, 2, 3))
        first, second = pairs(z.shape[2], z.device)
        return cosines[:, :, first, second].square().mean(1).sum(1) / max(len(first), 1)
