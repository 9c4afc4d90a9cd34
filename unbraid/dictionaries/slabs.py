"""How far a Gaussian posterior N(μ, σ²) is from the prior of a slab, in units of the prior's scale.

gaussian     KL = ½ (σ² + μ² - 1) - log σ                                                  p = N(0, 1)
laplace      KL = log 2 + E|w| - ½ log(2πe σ²)                                             p = e^(-|w|)/2
             E|w| = σ √(2/π) e^(-μ²/2σ²) + μ erf(μ/(σ√2))
horseshoe    KL ≤ E[-log(K/2 · log(1 + 4/(w² + 10⁻⁶)))] - ½ log(2πe σ²)                    p = ∫ N(0, λ²) 2/(π(1+λ²)) dλ
             K = 1/√(2π³); the expectation is estimated by the one draw of w there is

The horseshoe's density has no simple form; K/2 · log(1 + 4/w²) < p(w) is due to Carvalho, Polson and Scott (2010). It
makes the divergence at most log 2 too large and is tight in the tails; the 10⁻⁶ keeps it a bound, and its slope finite.
"""

import math
from collections.abc import Callable

import torch

from unbraid.axes import Tensor

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
