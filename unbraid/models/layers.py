"""The building blocks of transformers, for m members at once: linear maps, norms, positions, dropout, routers, weights.

Products are one batched call for all members, and torch's own kernels for one.

    dropout      x ← x · kept / (1 - rate)                kept ~ Bernoulli(1 - rate), by member, step and layer
    alibi        scores less slope_h · |t - s|            slope_h = 0.1^(h/(heads-2)), and of the last head 0
    sinusoidal   waves[t, 2i] = sin(t / 10000^(2i/d))     waves[t, 2i+1] = cos(t / 10000^(2i/d))
    rotary       each pair (i, i + e/2) of a query or key turns by the angle t / 10000^(2i/e)
    router       gates = softmax(W x): a token takes the k largest, scaled so that they sum to k, and 0 of the others;
                 a single one as it is (Switch), for scaled it would be 1, and the router learn nothing
    balance      n/k · Σ_i (share of tokens that pick i) · (mean gate of i): 1 when all are used alike, n/k at worst
    init         linear: weight and bias uniform in ±1/√inputs; norm: scale 1, shift 0, as torch's own layers
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.randomness import stream

LONGEST_WAVE = 10_000.0
SMALLEST_SLOPE = 0.1

InitialWeights = dict[str, np.ndarray]
"""The weights of one member before training, by name."""


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


def embed_tokens(table: Float[Tensor, "m v d"], tokens: Int[Tensor, "b t"]) -> Float[Tensor, "m b t d"]:
    """Each member's row for every token."""
    members, words, _ = table.shape
    rows = tokens + words * torch.arange(members, device=tokens.device)[:, None, None]
    return functional.embedding(rows, table.flatten(0, 1))


@dataclass(frozen=True)
class Dropout:
    """Draws from each member's own seed, the step and the name of the layer, so that they can be made again."""

    rate: float
    seeds: Sequence[int]
    step: int

    def apply(self, layer: str, name: str, x: Float[Tensor, "m *axes"]) -> Float[Tensor, "m *axes"]:
        draws = np.empty(x.shape, np.float32)
        for seed, member_draws in zip(self.seeds, draws, strict=True):
            stream(seed, "dropout", self.step, layer + name).random(dtype=np.float32, out=member_draws)
        kept = torch.from_numpy(draws).ge_(self.rate).to(x)
        return x * kept.div_(1 - self.rate)


def position_angles(length: int, width: int) -> Float[Tensor, "t i"]:
    """Of each position, half as many as there are dimensions; in float64."""
    steps = torch.arange(0, width, 2, dtype=torch.float64) / width
    return torch.arange(length, dtype=torch.float64)[:, None] * LONGEST_WAVE**-steps


@lru_cache(maxsize=8)
def sinusoidal_positions(length: int, width: int) -> Float[Tensor, "t d"]:
    """Sine and cosine waves of every length, in float64."""
    turned = position_angles(length, width)
    return torch.stack([turned.sin(), turned.cos()], -1).flatten(1)


@lru_cache(maxsize=8)
def rotary_table(length: int, width: int) -> tuple[Float[Tensor, "t e"], Float[Tensor, "t e"]]:
    """Cosines and signed sines, so that `x * cosines + swapped x * sines` is x rotated."""
    turned = position_angles(length, width)
    return turned.cos().repeat(1, 2), torch.cat([-turned.sin(), turned.sin()], 1)


def alibi_slopes(heads: int) -> list[float]:
    """What each head's score loses for each step of distance; the last head's loses nothing."""
    if heads == 1:
        return [SMALLEST_SLOPE]
    return [SMALLEST_SLOPE ** (head / max(heads - 2, 1)) for head in range(heads - 1)] + [0.0]


@lru_cache(maxsize=8)
def alibi_bias(length: int, heads: int) -> Float[Tensor, "h t s"]:
    """What is added to scores, as in ALiBi (Press et al. 2022) but for the slopes."""
    positions = torch.arange(length)
    return -torch.tensor(alibi_slopes(heads))[:, None, None] * (positions[:, None] - positions).abs()


def rotate(x: Float[Tensor, "*axes t e"]) -> Float[Tensor, "*axes t e"]:
    """Queries or keys, each rotated by its position: their products then depend on distances alone."""
    cosines, sines = (table.to(x) for table in rotary_table(*x.shape[-2:]))
    return x * cosines + x.roll(x.shape[-1] // 2, -1) * sines


@dataclass(frozen=True)
class RouterOutput:
    """What a router decides, and what its balance costs."""

    gates: Float[Tensor, "m b t n"]
    """How much of each a token takes; 0 of those that it does not pick."""
    balance: Float[Tensor, "m"]


def route(
    x: Float[Tensor, "m b t d"], router: Float[Tensor, "m n d"], k: int, mask: Bool[Tensor, "b t"]
) -> RouterOutput:
    """Each token's choice. Padding does not count for the balance; its shares have no gradient, the mean gates do."""
    gates = linear(x, router).softmax(-1)
    picked = torch.zeros_like(gates).scatter_(-1, gates.topk(k, dim=-1).indices, 1.0)
    taken = gates * picked
    if k > 1:
        taken = k * taken / taken.sum(-1, keepdim=True)
    mean, share = (_over_tokens(values, mask) for values in (gates, picked))
    return RouterOutput(taken, gates.shape[-1] / k * (mean * share).sum(-1))


def _over_tokens(values: Float[Tensor, "m b t n"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m n"]:
    weight = mask.to(values.dtype)
    return torch.einsum("mbtn,bt->mn", values, weight / weight.sum())


def init_uniform(rng: np.random.Generator, inputs: int, *shape: int) -> np.ndarray:
    """What torch gives a linear layer of so many inputs."""
    bound = inputs**-0.5
    return rng.uniform(-bound, bound, shape).astype(np.float32)


def init_norm(name: str, width: int) -> InitialWeights:
    """Scale 1 and shift 0 of a layer norm."""
    return {f"{name}.weight": np.ones(width, np.float32), f"{name}.bias": np.zeros(width, np.float32)}
