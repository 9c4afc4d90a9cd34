"""A variational dictionary: x is noise around a sum of directions, each with a gate, on or off, and a slab, how strong.

    prior        g_f ~ Bernoulli(rate)    w_f ~ the slab's prior p, of this scale    x ~ N(Σ g_f w_f direction_f, σ²I)
    posterior    g_f ~ Bernoulli(q_f)     q = sigmoid(sharpness · (Wx + encoder_bias))
                 w_f ~ N(μ_f, v_f)        μ = relu(exp(gain) · Wx + magnitude_bias)      v = exp(log_variance)

Training lowers 2σ² times the negative evidence bound; 2σ² is the setting `weight`:

    |x - x̂|² + weight · Σ_f [ q log(q/rate) + (1-q) log((1-q)/(1-rate)) + q · KL(N(μ, v) ‖ p) ]

x̂ is one draw: w by reparametrisation, g by the binary concrete relaxation sigmoid((logit q + logistic)/temperature).
Used, it is not random: code = q·μ where q > ½, and 0 elsewhere.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import logsigmoid

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activation import Activation, Fired, Named, Weights
from unbraid.dictionaries.gated import magnitudes
from unbraid.dictionaries.slabs import SLABS
from unbraid.randomness import stream


class Variational(Activation):
    codes_held: ClassVar[int] = 30
    kind: Literal["variational"] = "variational"
    slab: Literal["gaussian", "laplace", "horseshoe"] = "gaussian"
    weight: float = Field(default=0.005, gt=0)
    rate: float = Field(default=0.01, gt=0, lt=1)
    scale: float = Field(default=0.5, gt=0)
    deviation: float = Field(default=0.1, gt=0)
    temperature: float = Field(default=0.5, gt=0)
    sharpness: float = Field(default=10.0, gt=0)

    def parameters(self, members: int, features: int) -> Named:
        named = {name: torch.zeros(members, features) for name in ("gain", "magnitude_bias")}
        return {**named, "log_variance": torch.full((members, features), 2 * math.log(self.deviation))}

    def memory(self, seeds: Sequence[int]) -> Named:
        return {"noise_seed": torch.tensor(seeds), "draws": torch.zeros(len(seeds), dtype=torch.int64)}

    def probabilities(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Float[Tensor, "m b f"]:
        return (self.sharpness * pre).sigmoid()

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        expected = self.probabilities(pre, weights) * magnitudes(pre, weights)
        return Codes.dense(torch.where(pre > 0, expected, 0))

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        logits, mean = self.sharpness * pre, magnitudes(pre, weights)
        deviation = (weights["log_variance"] / 2).exp()[:, None]
        normal, logistic = _noise(pre, weights)
        draw = mean + deviation * normal
        gate = ((logits + logistic) / self.temperature).sigmoid()
        slab = SLABS[self.slab](mean / self.scale, deviation / self.scale, draw / self.scale)
        divergence = gate_divergence(logits, self.rate) + logits.sigmoid() * slab
        return Fired(
            Codes.dense(gate * draw),
            logits.sigmoid().sum(-1),
            costs={"divergence": self.weight * divergence.sum(-1).mean(-1)},
            memory={"noise_seed": weights["noise_seed"], "draws": weights["draws"] + 1},
            seen=self.codes(pre, weights),
        )


def gate_divergence(logits: Tensor, rate: float) -> Tensor:
    """KL(Bernoulli(sigmoid(logits)) ‖ Bernoulli(rate))."""
    q = logits.sigmoid()
    return q * (logsigmoid(logits) - math.log(rate)) + (1 - q) * (logsigmoid(-logits) - math.log1p(-rate))


def _noise(pre: Float[Tensor, "m b f"], weights: Weights) -> tuple[Tensor, Tensor]:
    """Normal and logistic draws, each member's from its own stream."""
    shape = tuple(pre.shape[1:])
    normal, logistic = np.empty(pre.shape, np.float32), np.empty(pre.shape, np.float32)
    for member, (seed, draw) in enumerate(zip(weights["noise_seed"].tolist(), weights["draws"].tolist(), strict=True)):
        rng = stream(seed, "noise", draw)
        rng.standard_normal(shape, np.float32, normal[member])
        uniform = rng.random(shape, np.float32)
        uniform = np.clip(uniform, 1e-7, 1 - 1e-7, out=uniform)
        logistic[member] = np.log(uniform / (1 - uniform))
    return torch.from_numpy(normal).to(pre.dtype), torch.from_numpy(logistic).to(pre.dtype)
