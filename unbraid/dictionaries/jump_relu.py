"""Jump-relu (Rajamanoharan et al. 2024): a feature fires where it exceeds its own threshold θ, which is learned.

    code = z · H(z - θ)        θ = exp(log_threshold)        sparsity counts how many fire: Σ_f H(z_f - θ_f)

Steps have no slope in θ, so gradients pretend a little: with K the rectangle, 1 within ±½, and bandwidth ε

    ∂code/∂z = H(z - θ)        ∂code/∂θ = -(θ/ε) · K((z - θ)/ε)        ∂H/∂z = 0        ∂H/∂θ = -(1/ε) · K((z - θ)/ε)
"""

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activation import Activation, Fired, Named, Weights


class JumpRelu(Activation):
    codes_held: ClassVar[int] = 8
    kind: Literal["jumprelu"] = "jumprelu"
    threshold: float = Field(default=0.1, gt=0)
    bandwidth: float = Field(default=0.05, gt=0)

    def parameters(self, members: int, features: int) -> Named:
        return {"log_threshold": torch.full((members, features), math.log(self.threshold))}

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        return Codes.dense(torch.where(pre > weights["log_threshold"].exp()[:, None], pre, 0))

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        values, fires = jump(pre, weights["log_threshold"].exp()[:, None], self.bandwidth)
        return Fired(Codes.dense(values), fires.sum(-1))


def jump(pre: Tensor, threshold: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
    """z · H(z - θ) and H(z - θ), with the gradients above."""
    return _Jump.apply(pre, threshold, bandwidth)  # pyright: ignore[reportReturnType]


class _Jump(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        fires = (pre > threshold).to(pre.dtype)
        return pre * fires, fires

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        in_values, in_fires = gradients
        pre, threshold = ctx.saved_tensors
        near = ((pre - threshold).abs() < ctx.bandwidth / 2) / ctx.bandwidth
        in_threshold = -(near * (threshold * in_values + in_fires)).sum(1, keepdim=True)
        return in_values * (pre > threshold), in_threshold, None
