"""Let each token pick a few of several: a softmax router, the k largest, and a cost that keeps all in use.

    gates = softmax(W x)        a token takes the k largest, scaled so that these sum to k, and 0 of the others;
                                a single one as it is (Switch), for scaled it would be 1, and the router learn nothing
    balance = n/k · Σ_i (share of tokens that pick i) · (mean gate of i)        1 when all are used alike, n/k at worst

The shares have no gradient; the mean gates do.
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Bool, Float, Tensor
from unbraid.models.layers import linear


@dataclass(frozen=True)
class Routed:
    gates: Float[Tensor, "m b t n"]
    """How much of each a token takes; 0 of those that it does not pick."""
    balance: Float[Tensor, "m"]


def route(x: Float[Tensor, "m b t d"], router: Float[Tensor, "m n d"], k: int, mask: Bool[Tensor, "b t"]) -> Routed:
    """Each token's choice; padding does not count for the balance."""
    gates = linear(x, router).softmax(-1)
    picked = torch.zeros_like(gates).scatter_(-1, gates.topk(k, dim=-1).indices, 1.0)
    taken = gates * picked
    if k > 1:
        taken = k * taken / taken.sum(-1, keepdim=True)
    mean, share = (_over_tokens(values, mask) for values in (gates, picked))
    return Routed(taken, gates.shape[-1] / k * (mean * share).sum(-1))


def _over_tokens(values: Float[Tensor, "m b t n"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m n"]:
    weight = mask.to(values.dtype)
    return torch.einsum("mbtn,bt->mn", values, weight / weight.sum())
