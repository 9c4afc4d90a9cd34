"""How a model knows where a token stands: a liking for what is near, rows that it learns, fixed waves, or a turn.

nearness     scores less slope_h · |t - s|            slope_h = 0.1^(h/(heads-2)), and of the last head 0
sinusoidal   waves[t, 2i] = sin(t / 10000^(2i/d))     waves[t, 2i+1] = cos(t / 10000^(2i/d))
rotary       each pair (i, i + e/2) of a query or key turns by the angle t / 10000^(2i/e)
"""

from functools import lru_cache

import torch

from unbraid.axes import Float, Tensor

LONGEST_WAVE = 10_000.0
SMALLEST_SLOPE = 0.1


def angles(length: int, width: int) -> Float[Tensor, "t i"]:
    """Of each position, half as many as there are dimensions; in float64."""
    steps = torch.arange(0, width, 2, dtype=torch.float64) / width
    return torch.arange(length, dtype=torch.float64)[:, None] * LONGEST_WAVE**-steps


@lru_cache(maxsize=8)
def waves(length: int, width: int) -> Float[Tensor, "t d"]:
    turned = angles(length, width)
    return torch.stack([turned.sin(), turned.cos()], -1).flatten(1)


@lru_cache(maxsize=8)
def turns(length: int, width: int) -> tuple[Float[Tensor, "t e"], Float[Tensor, "t e"]]:
    """Cosines and signed sines, so that `x * cosines + swapped x * sines` is x turned."""
    turned = angles(length, width)
    return turned.cos().repeat(1, 2), torch.cat([-turned.sin(), turned.sin()], 1)


def slopes(heads: int) -> list[float]:
    """How much less each head likes a token for each step away; the last head likes all distances alike."""
    if heads == 1:
        return [SMALLEST_SLOPE]
    return [SMALLEST_SLOPE ** (head / max(heads - 2, 1)) for head in range(heads - 1)] + [0.0]


@lru_cache(maxsize=8)
def nearness(length: int, heads: int) -> Float[Tensor, "h t s"]:
    """What is added to scores, as in ALiBi (Press et al. 2022) but for the slopes."""
    places = torch.arange(length)
    return -torch.tensor(slopes(heads))[:, None, None] * (places[:, None] - places).abs()


def turn(x: Float[Tensor, "*axes t e"]) -> Float[Tensor, "*axes t e"]:
    """Queries or keys, each turned by its position: their products then depend on distances alone."""
    cosines, sines = (part.to(x.dtype) for part in turns(*x.shape[-2:]))
    return x * cosines + x.roll(x.shape[-1] // 2, -1) * sines
