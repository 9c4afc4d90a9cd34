"""Gaussian beliefs: how different those of a sequence are, and how sharp the KL attention is that they make.

**Diversity** of a sequence's beliefs: the published [DIVERSITY] block.

μ_dist   mean distance |μ_i - μ_j| of the embedded means of two tokens
φ_std    standard deviation of the frames over tokens, in the mean over their coordinates
KL       of the mean over heads of KL(q_i ‖ Ω_ij q_j), over all pairs i ≠ j: range, mean, standard deviation
σ        range and mean of the embedded variances

As published the divergences include those of keys after the query, which attention never sees; `causal` ones, beside
them, are of keys before it alone. Standard deviations are unbiased. In general KL_ij ≠ KL_ji, but where variances are
alike the two sets have the same values. All is of one sequence, and says of no head by itself whether it can be sharp:
the mean over heads hides small ones under large ones, whose divergences are sums of more terms.

**By irrep**: of the means of one head, so that its width can be told from what it does.

mean_distance    mean |μ_i - μ_j| of the head's own columns, as published; of drawn means it grows like √(2K)
mean_deviation   √(mean over dimensions of var m), m = Rᵀμ: the same in a dimension, after transport; of any K
transport_effect √(mean |Ω_ij μ_j - μ_j|² / mean |μ_j|²) over pairs i ≠ j, Ω_ij = R_i R_jᵀ: 0 where transport does
                 nothing, as for every scalar; √2 where frames have nothing to do with one another and K > 1

**Theory**: how divergences vary with the dimension K of a head, and how sharp attention that makes.

Beliefs N(m_i, diag v_i) in the common frame, m ~ N(0, s²) and log v ~ N(log v₀, τ²), KL_ij = KL(N_i ‖ N_j). For τ = 0

    KL       = (s²/v) χ²_K                    mean (s²/v)·K, standard deviation (s²/v)·√(2K)
    of row i = (s²/2v) χ²_K(λ = |m_i|²/s²)    of its variance three quarters are within rows, which the softmax sees

Of n keys, β = softmax(-KL/κ) then has 1 + (n - 1)·r^K effective ones, with r < 1 the share of one dimension:

    log share of row i = log M(b) - b·(log M)'(b),  M(b) = E_j exp(-b·KL_ij),  b = 1/κ;   τ = 0, a = s²/(2vκ):
    r = exp(a/(1+2a)) / √((1+2a)·(1 + 4a²/(1+2a)²)) ≈ exp(-3a²)

so that sharpness is 1 - r^K: 3Ka² while it is small. With one κ for all heads it rises with K; with κ√K it hardly
depends on K (3a² at K = 1 and at any other). The gauge study's "law of large numbers" has the wrong sign: the standard
deviation of a sum grows like √K, and only relative to its mean, which the softmax drops, does it fall.

Assumed: tokens are drawn independently, dimensions too, each belief is diagonal in the common frame, and the mean over
keys is taken as over many (annealed): where a row has but few effective keys the theory is too sharp, by less than
.08 at 64 tokens (row_std: by less than a third). A learned head is none of this: it may set means apart where that
helps. A token's own key, where it is not masked, has divergence 0 and takes what weight the others leave it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from unbraid.axes import Bool, Float, Tensor


@dataclass(frozen=True)
class Spread:
    """Of divergences."""

    least: float
    most: float
    mean: float
    std: float


@dataclass(frozen=True)
class Diversity:
    """Of the beliefs of one sequence."""

    mean_distance: float
    frame_deviation: float
    kl: Spread
    """As published: pairs of any order."""
    causal_kl: Spread
    """Of a query and the keys before it."""
    variance_least: float
    variance_most: float
    variance_mean: float

    def __str__(self) -> str:
        """The published lines."""
        return (
            f"[DIVERSITY] μ_dist: {self.mean_distance:.4f} | φ_std: {self.frame_deviation:.4f} "
            f"| KL_std: {self.kl.std:.4f}\n"
            f"            KL range: [{self.kl.least:.4f}, {self.kl.most:.4f}] | mean: {self.kl.mean:.4f}\n"
            f"            σ range: [{self.variance_least:.6f}, {self.variance_most:.6f}] "
            f"| mean: {self.variance_mean:.6f}"
        )


def diversity(
    mean: Float[Tensor, "t d"], variance: Float[Tensor, "t d"], frame: Float[Tensor, "t a"], kl: Float[Tensor, "h t s"]
) -> Diversity:
    """Of the embedded beliefs of one sequence, and of what divergences its heads have."""
    return Diversity(
        mean_distance=mean_distance(mean),
        frame_deviation=float(frame.double().std(0).mean()),
        kl=spread_of(kl.mean(0), ~_ones(kl).triu().tril()),
        causal_kl=spread_of(kl.mean(0), _ones(kl).tril(-1)),
        variance_least=float(variance.min()),
        variance_most=float(variance.max()),
        variance_mean=float(variance.double().mean()),
    )


def mean_distance(means: Float[Tensor, "t e"]) -> float:
    """The mean distance of two tokens' means.

    Parameters
    ----------
    means : Tensor, shape (t, e)
        Of the tokens of a sequence, each in its own frame: of all heads (the published μ_dist) or of one.

    Returns
    -------
    float
        In the unit of the means; NaN of a single token.

    Examples
    --------
    >>> import torch
    >>> mean_distance(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    5.0
    """
    return float(torch.pdist(means.double()).mean())


def mean_deviation(means: Float[Tensor, "t e"]) -> float:
    """The standard deviation of tokens' means in a dimension: half the mean square distance, per dimension, rooted.

    Parameters
    ----------
    means : Tensor, shape (t, e)
        Of the tokens of a sequence, in the common frame.

    Returns
    -------
    float
        Root of the mean over dimensions of the unbiased variance over tokens; it does not grow with their number.

    Examples
    --------
    >>> import torch
    >>> round(mean_deviation(torch.tensor([[1.0, 1.0], [-1.0, -1.0]])) ** 2, 9)
    2.0
    """
    return float(means.double().var(0).mean().sqrt())


def transport_effect(means: Float[Tensor, "t h e"], turn: Float[Tensor, "t e e"]) -> Float[Tensor, "h"]:
    """How far transport moves the mean that it carries from one token to another, over the length of a mean.

    Parameters
    ----------
    means : Tensor, shape (t, h, e)
        Of the tokens of a sequence and the heads of one degree, each in its token's own frame.
    turn : Tensor, shape (t, e, e)
        R, how the frame of each token turns that degree; transport from j to i is R_i R_jᵀ.

    Returns
    -------
    Tensor, shape (h,)
        Of each head: 0 where transport does nothing, 2 where it inverts; NaN where all means are 0.

    Examples
    --------
    A quarter turn moves a vector of length 1 by √2:

    >>> import torch
    >>> quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> means = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> transport_effect(means, torch.stack([torch.eye(2), quarter])).square()
    tensor([2.0000], dtype=torch.float64)
    """
    own, turn = means.double(), turn.double()
    common, tokens = torch.einsum("tij,thi->thj", turn, own), len(own)
    moved = own.new_zeros(own.shape[1])
    for here in turn:  # a query at a time: all pairs at once would be large on long texts
        moved += (common @ here.T - own).square().sum((0, 2))
    return (moved / (tokens - 1) / own.square().sum((0, 2))).sqrt()


def tensor_share(degrees: Sequence[int]) -> float:
    """The share of heads of degree 2 or higher, which the gauge study would have as many of as possible.

    >>> tensor_share([0, 0, 1, 2])
    0.25
    """
    return sum(degree >= 2 for degree in degrees) / len(degrees)


def spread_of(kl: Float[Tensor, "t s"], pairs: Bool[Tensor, "t s"]) -> Spread:
    """Least, largest, mean and standard deviation of the divergences of these pairs."""
    found = kl.double()[pairs]
    return Spread(float(found.min()), float(found.max()), float(found.mean()), float(found.std()))


def causal_spread(kl: Float[Tensor, "m b h t s"]) -> tuple[Float[Tensor, "m h"], Float[Tensor, "m h"]]:
    """Mean and standard deviation of every head by itself, over queries and the keys before them."""
    found = kl.double().permute(0, 2, 1, 3, 4)[..., _ones(kl).tril(-1)].flatten(2)
    return found.mean(-1), found.std(-1)


def _ones(kl: Float[Tensor, "*any t s"]) -> Bool[Tensor, "t s"]:
    return torch.ones(kl.shape[-2:], dtype=torch.bool, device=kl.device)


Rule = Literal["shared", "head"]
"""One κ for all heads, as published, or κ·√(dimension of the head)."""
MEANS, VARIANCES = 48, 20
"""Points of the quadratures."""
MOST = 1024
Grid = Float[np.ndarray, "..."]


@dataclass(frozen=True)
class Statistics:
    """Of beliefs in the common frame: variance of their means in a dimension, and how their variances are spread."""

    means: float
    """s²."""
    variance: float
    """v₀, the geometric mean."""
    log_deviation: float = 0.0
    """τ, the standard deviation of the logarithm."""

    @classmethod
    def of(cls, means: Float[Tensor, "t d"], variances: Float[Tensor, "t d"]) -> "Statistics":
        """Measured over tokens."""
        logarithms = variances.double().log()
        spread = means.double().var(0).mean()
        return cls(float(spread), math.exp(logarithms.mean()), float(logarithms.std()))


def temperature(kappa: float, rule: Rule, dimension: int) -> float:
    """What the divergences of a head are divided by."""
    return kappa if rule == "shared" else kappa * math.sqrt(dimension)


def kl_mean(statistics: Statistics, dimension: int) -> float:
    """Over all pairs of different tokens."""
    return dimension * _moments(statistics)[0]


def kl_std(statistics: Statistics, dimension: int) -> float:
    """The standard deviation over all pairs of different tokens."""
    return math.sqrt(dimension * _moments(statistics)[1])


def expected_sharpness(
    statistics: Statistics, dimension: int, kappa: float, tokens: int, self_masked: bool = True
) -> float:
    """Of causal attention at this κ (of this head), in the mean over queries with a choice."""
    others = np.arange(1.0, tokens)
    effective = np.log1p((others - 1) * _of_one_dimension(statistics, kappa).share ** dimension)
    own = _own(statistics, dimension, kappa, others, self_masked)
    entropy = np.where(own > 0, -own * np.log(np.maximum(own, 1e-300)), 0) - (1 - own) * np.log1p(-own)
    allowed = others + (not self_masked)
    choice = allowed > 1
    found = 1 - (np.exp(entropy + (1 - own) * effective) - 1)[choice] / (allowed[choice] - 1)
    return float(found.mean()) if choice.any() else math.nan


def expected_row_std(
    statistics: Statistics, dimension: int, kappa: float, tokens: int, self_masked: bool = True
) -> float:
    """The same of the published row_std, from Σβ² = 1 / (1 + (n - 1)·r₂^K) of the n keys other than the token."""
    others = np.arange(1.0, tokens)
    squares = 1 / (1 + (others - 1) * _of_one_dimension(statistics, kappa).share_of_squares ** dimension)
    rest = 1 - _own(statistics, dimension, kappa, others, self_masked)
    variance = squares / (tokens - 1) - 1 / (tokens - 1) ** 2
    return float((rest * np.sqrt(np.maximum(variance, 0))).sum() / tokens)


def smallest_sharp(
    statistics: Statistics,
    kappa: float,
    rule: Rule,
    tokens: int,
    threshold: float,
    measure: Literal["sharpness", "row_std"] = "sharpness",
    self_masked: bool = True,
) -> int | None:
    """The smallest dimension of a head that is expected above the threshold; None where none up to 1024 is.

    By the rule κ√d_h all heads are nearly alike, so that there is mostly 1 or None.
    """
    expect = expected_sharpness if measure == "sharpness" else expected_row_std
    for dimension in range(1, MOST + 1):
        if expect(statistics, dimension, temperature(kappa, rule, dimension), tokens, self_masked) > threshold:
            return dimension
    return None


@dataclass(frozen=True)
class _Dimension:
    """Of one dimension, in the mean over queries: each is to the power of K for K of them."""

    share: float
    """Effective keys by entropy over keys, of many keys."""
    share_of_squares: float
    """The same by Σβ²."""
    weight: float
    """exp(-KL/κ) of a key."""


def _of_one_dimension(statistics: Statistics, kappa: float) -> _Dimension:
    """Quadratures over a query's mean and variance and a key's variance; over a key's mean in closed form."""
    b, s2 = 1 / kappa, statistics.means
    m, m_share = _normal(MEANS)
    z, z_share = _normal(VARIANCES) if statistics.log_deviation else (np.zeros(1), np.ones(1))
    variances = statistics.variance * np.exp(statistics.log_deviation * z)
    squares, query, keyed = s2 * m[:, None, None] ** 2, variances[:, None], variances
    ratio = query / keyed
    apart, spread = (ratio - 1 - np.log(ratio)) / 2, s2 / keyed

    def logarithm(inverse: float) -> Grid:
        wide = 1 + inverse * spread
        return -inverse * apart - np.log(wide) / 2 - inverse * squares / (2 * keyed * wide)

    slope = -apart - spread / (2 * (1 + b * spread)) - squares / (2 * keyed * (1 + b * spread) ** 2)
    once, twice = (np.exp(logarithm(inverse)) for inverse in (b, 2 * b))
    of_row, of_slope, of_twice = (each @ z_share for each in (once, once * slope, twice))
    queries = m_share[:, None] * z_share
    share = of_row * np.exp(-b * of_slope / of_row)
    return _Dimension(*(float((queries * each).sum()) for each in (share, of_row**2 / of_twice, of_row)))


def _own(
    statistics: Statistics, dimension: int, kappa: float, others: Float[np.ndarray, "n"], self_masked: bool
) -> Float[np.ndarray, "n"]:
    """The weight of the token itself, whose divergence is 0, among so many others."""
    if self_masked:
        return np.zeros(len(others))
    return 1 / (1 + others * _of_one_dimension(statistics, kappa).weight ** dimension)


def _moments(statistics: Statistics) -> tuple[float, float]:
    """Mean and variance of one dimension's part of a divergence, A + B·(m_i - m_j)², with m_i - m_j ~ N(0, 2s²)."""
    t2, relative = statistics.log_deviation**2, statistics.means / statistics.variance
    mean = (math.exp(t2) - 1) / 2 + relative * math.exp(t2 / 2)
    z, share = _normal(VARIANCES) if t2 else (np.zeros(1), np.ones(1))
    pairs, logs = share[:, None] * share, statistics.log_deviation * (z[:, None] - z)
    apart = (np.exp(logs) - 1 - logs) / 2
    inverse = np.exp(-statistics.log_deviation * z)
    square = apart**2 + 2 * apart * inverse * relative + 3 * inverse**2 * relative**2
    return mean, max(float((pairs * square).sum()) - mean**2, 0.0)


def _normal(points: int) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Points and weights of the mean over a standard normal."""
    points_, weights = np.polynomial.hermite_e.hermegauss(points)
    return points_, weights / weights.sum()
