"""How much each token counts in the gradient of Σ_j β_ij KL_ij: with u = KL/κ and a = Σ_j β_j u_j,

    w_j = β_j c_j,   β = softmax(-u),   c_j = 1 ∓ (u_j - a)
    ∂/∂u_j = β_j (g_j (∓1 - c_j) + Σ_k g_k w_k ± (1 - u_j + a) Σ_k g_k β_k)        of Σ g w, by hand

Upper signs are right, lower ones published. By hand, because each array of pairs of tokens that autograd keeps costs
more than the arithmetic.
"""

from typing import Any

import torch

from unbraid.axes import Bool, Float, Tensor


def heard_shares(
    u: Float[Tensor, "m b t s"], allowed: Bool[Tensor, "#b #t s"], sign: float
) -> Float[Tensor, "m b t s"]:
    """The w of each pair; `sign` is -1, or as published 1."""
    return _Shares.apply(u, allowed, sign)


class _Shares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, allowed: Tensor, sign: float) -> Tensor:
        look = torch.neg(u).masked_fill_(~allowed, -torch.inf).softmax(-1)
        apart = u - (look * u).sum(-1, keepdim=True)
        ctx.save_for_backward(look, apart)
        ctx.sign = sign
        return torch.mul(apart, sign).add_(1).mul_(look)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        look, apart = ctx.saved_tensors
        sign, (given,) = ctx.sign, gradients
        seen = given * look
        plain = seen.sum(-1, keepdim=True)
        weighed = plain + sign * (seen * apart).sum(-1, keepdim=True)
        turned = (apart * (sign * plain)).add_(weighed - sign * plain).mul_(look)
        return turned.add_(seen.mul_(torch.mul(apart, -sign).add_(sign - 1))), None, None
