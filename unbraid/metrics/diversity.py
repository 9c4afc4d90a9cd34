"""How different the beliefs of a sequence are from one another: the seed's [DIVERSITY] block.

μ_dist   mean distance |μ_i - μ_j| of the embedded means of two tokens
φ_std    standard deviation of the frames over tokens, in the mean over their coordinates
KL       of the mean over heads of KL(q_i ‖ Ω_ij q_j), over all pairs i ≠ j: range, mean, standard deviation
σ        range and mean of the embedded variances

As published the divergences include those of keys after the query, which attention never sees; `causal` ones, beside
them, are of keys before it alone. Standard deviations are unbiased. In general KL_ij ≠ KL_ji, but where variances are
alike the two sets have the same values. All is of one sequence, and says of no head by itself whether it can be sharp:
the mean over heads hides small ones under large ones, whose divergences are sums of more terms.
"""

from dataclasses import dataclass

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
        """The seed's own lines."""
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
        mean_distance=float(torch.pdist(mean.double()).mean()),
        frame_deviation=float(frame.double().std(0).mean()),
        kl=spread_of(kl.mean(0), ~_ones(kl).triu().tril()),
        causal_kl=spread_of(kl.mean(0), _ones(kl).tril(-1)),
        variance_least=float(variance.min()),
        variance_most=float(variance.max()),
        variance_mean=float(variance.double().mean()),
    )


def spread_of(kl: Float[Tensor, "t s"], pairs: Bool[Tensor, "t s"]) -> Spread:
    found = kl.double()[pairs]
    return Spread(float(found.min()), float(found.max()), float(found.mean()), float(found.std()))


def causal_spread(kl: Float[Tensor, "m b h t s"]) -> tuple[Float[Tensor, "m h"], Float[Tensor, "m h"]]:
    """Mean and standard deviation of every head by itself, over queries and the keys before them."""
    found = kl.double().permute(0, 2, 1, 3, 4)[..., _ones(kl).tril(-1)].flatten(2)
    return found.mean(-1), found.std(-1)


def _ones(kl: Float[Tensor, "*any t s"]) -> Bool[Tensor, "t s"]:
    return torch.ones(kl.shape[-2:], dtype=torch.bool)
