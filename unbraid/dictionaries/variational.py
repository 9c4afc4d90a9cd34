"""A variational dictionary: x is noise around a sum of directions, each with a gate, on or off, and a slab, how strong.

    prior        g_f ~ Bernoulli(rate)    w_f ~ the slab's prior p, of this scale    x ~ N(Σ g_f w_f direction_f, σ²I)
    posterior    g_f ~ Bernoulli(q_f)     q = sigmoid(sharpness · (Wx + encoder_bias))
                 w_f ~ N(μ_f, v_f)        μ = relu(exp(gain) · Wx + magnitude_bias)      v = exp(log_variance)

Training lowers 2σ² times the negative evidence bound; 2σ² is the setting `weight`:

    |x - x̂|² + weight · Σ_f [ q log(q/rate) + (1-q) log((1-q)/(1-rate)) + q · KL(N(μ, v) ‖ p) ]

x̂ is one draw: w by reparametrisation, g by the binary concrete relaxation sigmoid((logit q + logistic)/temperature).
Used, it is not random: code = q·μ where q > ½, and 0 elsewhere.

The divergence of a slab's posterior from its prior, KL(N(μ, v) ‖ p), in units of the prior's scale and with σ² = v:

gaussian     KL = ½ (σ² + μ² - 1) - log σ                                                  p = N(0, 1)
laplace      KL = log 2 + E|w| - ½ log(2πe σ²)                                             p = e^(-|w|)/2
             E|w| = σ √(2/π) e^(-μ²/2σ²) + μ erf(μ/(σ√2))
horseshoe    KL ≤ E[-log(K/2 · log(1 + 4/(w² + 10⁻⁶)))] - ½ log(2πe σ²)                    p = ∫ N(0, λ²) 2/(π(1+λ²)) dλ
             K = 1/√(2π³); the expectation is estimated by the one draw of w there is

The horseshoe's density has no simple form; K/2 · log(1 + 4/w²) < p(w) is due to Carvalho, Polson and Scott (2010). It
makes the divergence at most log 2 too large and is tight in the tails; the 10⁻⁶ keeps it a bound, and its slope finite.
"""

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import logsigmoid

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activations import Activation, Fired, Named, Weights, magnitudes
from unbraid.randomness import stream

Divergence = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From the mean, the standard deviation and one draw."""

FLOOR = 1e-6


def gaussian(mean: Tensor, deviation: Tensor, draw: Tensor) -> Tensor:
    return (deviation.square() + mean.square() - 1) / 2 - deviation.log()


def laplace(mean: Tensor, deviation: Tensor, draw: Tensor) -> Tensor:
    standard = mean / deviation
    size = deviation * math.sqrt(2 / math.pi) * (-standard.square() / 2).exp()
    size = size + mean * torch.erf(standard / math.sqrt(2))
    return math.log(2) + size - _entropy(deviation)


def horseshoe(mean: Tensor, deviation: Tensor, draw: Tensor) -> Tensor:
    density = torch.log1p(4 / (draw.square() + FLOOR)) / (2 * math.sqrt(2 * math.pi**3))
    return -density.log() - _entropy(deviation)


def _entropy(deviation: Tensor) -> Tensor:
    return deviation.log() + math.log(2 * math.pi * math.e) / 2


SLABS: dict[str, Divergence] = {
    "gaussian": gaussian,
    "laplace": laplace,
    "horseshoe": horseshoe,
}


class Variational(Activation):
    """A spike-and-slab posterior over codes: each feature has a gate (fires or not) and a strength.

    Training minimises the negative evidence lower bound (ELBO). A trained dictionary is deterministic: a feature
    fires where its gate is more likely open than closed, with the posterior mean as its strength. The prior `rate`
    makes codes sparse; no `Sparsity` is needed.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=3, activation=ub.Variational()), dimensions=2, seeds=[0])
    >>> bool((stack.probabilities(torch.zeros(1, 2)) == 0.5).all())
    True
    """

    codes_held: ClassVar[int] = 30
    counts_codes: ClassVar[bool] = False
    kind: Literal["variational"] = "variational"
    """The rule's name in a configuration."""
    slab: Literal["gaussian", "laplace", "horseshoe"] = "gaussian"
    """The prior of strengths; laplace and horseshoe have heavier tails and shrink weak strengths more."""
    weight: float = Field(default=0.005, gt=0)
    """2σ², twice the noise variance: weight of the KL term against the squared error; higher is sparser."""
    rate: float = Field(default=0.01, gt=0, lt=1)
    """The prior probability that a feature fires in a sample; a higher one makes denser codes."""
    scale: float = Field(default=0.5, gt=0)
    """The scale of the prior of strengths, in units of codes; a larger one shrinks strong codes less."""
    deviation: float = Field(default=0.1, gt=0)
    """Initial standard deviation of the posterior, in units of codes; learned per feature, higher starts noisier."""
    temperature: float = Field(default=0.5, gt=0)
    """Temperature of the relaxed gates in training; a higher one is smoother, a lower one nearer to on or off."""
    sharpness: float = Field(default=10.0, gt=0)
    """Slope of the gate's logit in the pre-activation; a higher one makes gates more certain."""

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
    return torch.from_numpy(normal).to(pre), torch.from_numpy(logistic).to(pre)
