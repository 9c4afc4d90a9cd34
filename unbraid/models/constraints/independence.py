"""Make heads tell different things about a story: less mutual information between what two heads read, by one of three.

    published   CE = mean over pairs i < j and stories b of  -log softmax_c(z_ib · z_jc / temperature)[c = b]
    corrected   log B - CE
    club        mean over ordered pairs of  E_b[log q(z_jb | z_ib)] - E_b E_c[log q(z_jc | z_ib)]

z is what a head reads, mean over tokens, at length one. InfoNCE says I(z_i; z_j) ≥ log B - CE: to lower the published
cost is to raise that bound, and draws heads together. The corrected form lowers the bound, which by itself promises
nothing about what lies above it. CLUB (Cheng et al. 2020) is a bound from above where q is the true conditional;
here q is Gaussian around a ridge regression on the batch at hand, held still while heads descend.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch.nn.functional import normalize

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import PerMemberFloat
from unbraid.models.constraints.base import Constraint, over_tokens, pairs

RIDGE = 0.1
"""Of a head's mean variance: added to what predicts, and to what is left over."""
TINY = 1e-9


class Independence(Constraint):
    """Penalise the mutual information between what two heads read, in the mean over all pairs.

    corrected: lowers InfoNCE's bound from below, log B - CE, which promises nothing about the information itself.
    published: lowers CE, which raises that bound and rewards dependence. club: lowers CLUB's bound from above
    (Cheng et al. 2020).

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> single = torch.randn(1, 5, 1, 3, 8)  # member, sequence, head, token, dimension: one head has no pair
    >>> ub.Independence().cost(single, torch.ones(5, 3, dtype=torch.bool)).tolist()
    [0.0]
    """

    weight: PerMemberFloat = Field(default=0.05, ge=0)
    """Factor of the cost in the loss; raising it enforces the constraint more strongly."""
    form: Literal["corrected", "published", "club"] = "corrected"
    """Which estimate of the mutual information: InfoNCE (corrected, or with the published sign) or CLUB."""
    temperature: float = Field(default=0.2, gt=0)
    """Temperature of InfoNCE's softmax over cosines, above 0; lower contrasts more sharply."""

    def cost(self, output: Float[Tensor, "m b h t e"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m"]:
        z = normalize(over_tokens(output, mask), dim=-1)
        if z.shape[2] == 1:
            return z.new_zeros(len(z))
        if self.form == "club":
            return club(z, Conditional.of(z.detach()))
        contrast = info_nce(z, self.temperature)
        return contrast if self.form == "published" else math.log(z.shape[1]) - contrast


def info_nce(z: Float[Tensor, "m b h e"], temperature: float) -> Float[Tensor, "m"]:
    """How hard it is to tell, among all stories, which one another head read."""
    first, second = pairs(z.shape[2])
    scores = torch.einsum("mbpe,mcpe->mpbc", z[:, :, first], z[:, :, second]) / temperature
    return (scores.logsumexp(-1) - scores.diagonal(dim1=-2, dim2=-1)).mean((1, 2))


@dataclass(frozen=True)
class Conditional:
    """q(z_j | z_i) = N(z_i · slope_ij + shift_ij, variance_ij), of all pairs of heads."""

    slope: Float[Tensor, "m h e g"]
    """g runs over the heads j and their dimensions."""
    shift: Float[Tensor, "m h 1 g"]
    variance: Float[Tensor, "m h 1 g"]

    @classmethod
    def of(cls, z: Float[Tensor, "m b h e"]) -> "Conditional":
        """By ridge regression over the stories."""
        x, y = z.transpose(1, 2), z.flatten(2)[:, None]
        x_mean, y_mean = x.mean(2, keepdim=True), y.mean(2, keepdim=True)
        own = (x - x_mean).mT @ (x - x_mean) / z.shape[1]
        level = own.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        own = own + (RIDGE * level + TINY) * torch.eye(z.shape[-1], dtype=z.dtype)
        slope = torch.linalg.solve(own, (x - x_mean).mT @ (y - y_mean) / z.shape[1])
        shift = y_mean - x_mean @ slope
        left = (y - x @ slope - shift).square().mean(2, keepdim=True)
        return cls(slope, shift, left + RIDGE * y.var(2, correction=0, keepdim=True) + TINY)


def club(z: Float[Tensor, "m b h e"], q: Conditional) -> Float[Tensor, "m"]:
    """How much better q tells a story's own reading than that of another."""
    y = z.flatten(2)[:, None]
    expected = z.transpose(1, 2) @ q.slope + q.shift
    own = (y - expected).square()
    other = y.var(2, correction=0, keepdim=True) + (y.mean(2, keepdim=True) - expected).square()
    gained = ((other - own) / (2 * q.variance)).mean(2)
    heads = z.shape[2]
    apart = 1 - torch.eye(heads, dtype=z.dtype)
    return (gained.unflatten(-1, (heads, -1)).sum(-1) * apart).sum((1, 2)) / (heads * (heads - 1))
