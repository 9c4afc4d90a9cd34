"""What a SynthSAEBench world plants: rates, a forest, a copula, magnitudes, directions, each drawn as SAELens does.

    base rate   b_i = min + (max - min) (i^-s - n^-s) / (1 - n^-s),  i = 1 … n                      (Zipf)
    forest      breadth first: `roots` trees, `branching` children a node, `depth` levels below a root, while there
                are features; what is left over has neither parent nor children
    drawn with  p_i = b_i, or with compensation, for a child of parent h:
                p_i = min(1, b_i / b_h · (1 + Σ_{siblings j} b_j / b_h)), the bracket only among exclusive siblings
    copula      z = F ε + σ η,  ε and η standard normal, F_ir ~ N(0, scale²), σ_i² = 1 - |F_i|²
    magnitude   relu(mean_i + std_i ξ),  mean_i from `first` to `last` on a line, std_i = |N(m, s²)|
    direction   random unit vectors, then Adam on  Σ_{i≠j} (e_i·e_j)² + n Σ_i (|e_i|² - 1)²,  then unit length again

The generators are torch's, with SAELens' seeds (seed, seed + 1, + 3, + 4), so that the same seed plants the same world
there on a CPU. Their loss is minimised by its gradient in closed form, 4 (E(EᵀE) - |e_i|² e_i) + 4n (|e_i|² - 1) e_i,
which costs n·d² where theirs costs n²·d; in double, so that it does not depend on the number of threads.
"""

import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn.functional import normalize

from unbraid.axes import Bool, Float, Int, Tensor

LEAST_OWN = 0.01
"""The least variance of z that is a feature's own: stronger factors are scaled down to it, as SAELens does."""


@dataclass(frozen=True)
class Forest:
    """Each feature's parent (-1: none), whether its children exclude each other, and whether they scale with it."""

    parents: Int[np.ndarray, "n"]
    exclusive: Bool[np.ndarray, "n"]
    scaling: Bool[np.ndarray, "n"]

    @classmethod
    def grow(cls, n: int, roots: int, branching: int, depth: int) -> "Forest":
        """Trees breadth first, until there are no features left; nobody excludes or scales yet."""
        parents, level, used = np.full(n, -1), np.arange(min(roots, n)), min(roots, n)
        for _ in range(depth):
            children = np.repeat(level, branching)[: n - used]
            parents[used : used + len(children)] = children
            level, used = np.arange(used, used + len(children)), used + len(children)
        return cls(parents, np.zeros(n, bool), np.zeros(n, bool))

    @property
    def sizes(self) -> Int[np.ndarray, "n"]:
        """The number of children of each feature."""
        return np.bincount(self.parents[self.parents >= 0], minlength=len(self.parents))

    @cached_property
    def levels(self) -> list[Int[np.ndarray, "level"]]:
        """Features by their distance from a root, the parentless first; each level sorted by parent."""
        depth, above = np.zeros(len(self.parents), int), self.parents
        while (above >= 0).any():
            depth += above >= 0
            above = np.where(above >= 0, self.parents[above], -1)
        by_level = [np.flatnonzero(depth == level) for level in range(depth.max(initial=0) + 1)]
        return [level[np.argsort(self.parents[level], kind="stable")] for level in by_level]

    def compensated(self, base: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """The rates to draw with, so that what is left after gating fires about as often as `base` says."""
        child = np.flatnonzero(self.parents >= 0)
        above = self.parents[child]
        together = np.bincount(above, base[child], minlength=len(base))
        others = np.maximum(together[above] - base[child], 0) * (self.exclusive & (self.sizes > 1))[above]
        drawn = base.copy()
        drawn[child] *= (1 + others / base[above]) / base[above]
        return np.minimum(drawn, 1)


@dataclass(frozen=True)
class Planted:
    """All that decides what fires, how strongly, and where it points."""

    drawn: Float[np.ndarray, "n"]
    """How often each feature is drawn, before its parent and siblings have their say."""
    forest: Forest
    factors: Float[np.ndarray, "n rank"]
    own: Float[np.ndarray, "n"]
    """σ, the standard deviation of z that is a feature's own."""
    mean: Float[np.ndarray, "n"]
    std: Float[np.ndarray, "n"]
    directions: Float[Tensor, "n d"]
    bias: Float[Tensor, "d"]


def zipf_rates(n: int, exponent: float, highest: float, lowest: float) -> Float[np.ndarray, "n"]:
    """Rates that fall with rank^-exponent, stretched to run from the highest to the lowest."""
    power = np.arange(1, n + 1, dtype=float) ** -exponent
    return lowest + (highest - lowest) * (power - power[-1]) / (1 - power[-1]) if n > 1 else np.array([highest])


def draw_exclusive(forest: Forest, share: float, seed: int) -> Bool[np.ndarray, "n"]:
    """Which parents of at least two have children that exclude each other: a share of them, drawn at random."""
    eligible = np.flatnonzero(forest.sizes >= 2).tolist()
    chosen = random.Random(seed).sample(range(len(eligible)), int(len(eligible) * share))
    exclusive = np.zeros(len(forest.parents), bool)
    exclusive[[eligible[index] for index in chosen]] = True
    return exclusive


def draw_factors(n: int, rank: int, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """F and σ of the copula."""
    factors = torch.randn(n, rank, generator=_generator(seed)) * scale
    square = factors.square().sum(1)
    loud = 1 - square < LEAST_OWN
    factors[loud] *= ((1 - LEAST_OWN) / square[loud]).sqrt()[:, None]
    return factors.numpy(), (1 - factors.square().sum(1)).sqrt().numpy()


def folded_normal(
    n: int, mean: float, std: float, seed: int, lowest: float | None = None, highest: float | None = None
) -> Float[np.ndarray, "n"]:
    """|N(mean, std²)|, one a feature, between bounds where they are given."""
    drawn = (mean + torch.randn(n, generator=_generator(seed)) * std).abs().numpy()
    return drawn if lowest is None and highest is None else np.clip(drawn, lowest, highest)


def draw_directions(
    n: int, dimensions: int, bias: float, steps: int, rate: float, seed: int
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "d"]]:
    """Unit directions, turned away from each other for some steps; and a bias of the length asked for."""
    generator = _generator(seed)
    rows = normalize(torch.randn(n, dimensions, generator=generator), dim=1)
    offset = bias * normalize(torch.randn(dimensions, generator=generator), dim=0)
    return (orthogonalize(rows, steps, rate) if steps else rows), offset


def orthogonalize(rows: Float[Tensor, "n d"], steps: int, rate: float) -> Float[Tensor, "n d"]:
    """Adam on the squared cosines of all pairs, with lengths held near 1."""
    moving, number = rows.double(), len(rows)
    first, second = torch.zeros_like(moving), torch.zeros_like(moving)
    for step in range(1, steps + 1):
        square = moving.square().sum(1, keepdim=True)
        gradient = 4 * (moving @ (moving.T @ moving) + (number * (square - 1) - square) * moving)
        first.lerp_(gradient, 0.1)
        second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = (second / (1 - 0.999**step)).sqrt_().add_(1e-8)
        moving = moving.addcdiv(first, size, value=-rate / (1 - 0.9**step))
    return normalize(moving, dim=1).float()


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
