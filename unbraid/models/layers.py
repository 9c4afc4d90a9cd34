"""The parts of a transformer for m members at once: one batched product for all, and torch's own kernels for one."""

import torch
from torch.nn import functional

from unbraid.axes import Float, Int, Tensor


def linear(
    x: Float[Tensor, "m *rows i"], weight: Float[Tensor, "m o i"], bias: Float[Tensor, "m o"] | None = None
) -> Float[Tensor, "m *rows o"]:
    """Each member's rows times its own weight."""
    if len(weight) == 1:
        lone_bias = None if bias is None else bias.squeeze(0)
        return functional.linear(x.squeeze(0), weight.squeeze(0), lone_bias).unsqueeze(0)
    rows = x.flatten(1, -2)
    y = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    return y.unflatten(1, x.shape[1:-1])


def layer_norm(
    x: Float[Tensor, "m b t d"], weight: Float[Tensor, "m d"], bias: Float[Tensor, "m d"]
) -> Float[Tensor, "m b t d"]:
    """Rows of mean 0 and variance 1, then scaled and shifted."""
    if len(weight) == 1:
        return functional.layer_norm(x, x.shape[-1:], weight.squeeze(0), bias.squeeze(0))
    normed = functional.layer_norm(x, x.shape[-1:])
    return torch.addcmul(bias[:, None, None], normed, weight[:, None, None])


def look_up(table: Float[Tensor, "m v d"], tokens: Int[Tensor, "b t"]) -> Float[Tensor, "m b t d"]:
    """Each member's row for every token."""
    members, words, _ = table.shape
    places = tokens + words * torch.arange(members)[:, None, None]
    return functional.embedding(places, table.flatten(0, 1))
