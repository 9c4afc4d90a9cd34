"""What fires, how sparsely, whether it fires when the truth does, and how well the inputs are reconstructed from it.

density   = share of samples in which a feature fires     L0 = Σ_f density     dead = features that never fired
zeros     = share of samples and features that are 0 = 1 - mean density
precision = fired together / learned fired                recall = fired together / true fired
F1        = 2 · fired together / (learned fired + true fired)
reconstruction error = mean over samples and dimensions of (x - x̂)²
explained variance   = 1 - Σ |x - x̂|² / Σ |x - mean x|²

All come from counts and sums that add up over batches.
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Bool, Float, Int, Tensor


def density(counts: Int[Tensor, "m f"], samples: int) -> Float[Tensor, "m f"]:
    """The share of samples in which each feature fires, from counts."""
    return counts.double() / samples


def l0(counts: Int[Tensor, "m f"], samples: int) -> Float[Tensor, "m"]:
    """Features that fire in a sample, on average."""
    return density(counts, samples).sum(-1)


def zeros(counts: Int[Tensor, "m f"], samples: int) -> Float[Tensor, "m"]:
    """The share of all codes that are 0, over samples and features."""
    return 1 - density(counts, samples).mean(-1)


def dead(counts: Int[Tensor, "m f"]) -> Int[Tensor, "m"]:
    """How many features never fired."""
    return (counts == 0).sum(-1)


@dataclass(frozen=True)
class FiringCounts:
    """In how many samples each true feature fired, its match fired, and both did; counts of parts add up."""

    together: Int[Tensor, "m n"]
    learned: Int[Tensor, "m n"]
    true: Int[Tensor, "m n"]

    def __add__(self, other: "FiringCounts") -> "FiringCounts":
        return FiringCounts(self.together + other.together, self.learned + other.learned, self.true + other.true)

    def precision(self) -> Float[Tensor, "m n"]:
        """NaN where the match never fired."""
        return self.together / self.learned

    def recall(self) -> Float[Tensor, "m n"]:
        """NaN where the true feature never fired."""
        return self.together / self.true

    def f1(self) -> Float[Tensor, "m n"]:
        """NaN where neither ever fired."""
        return 2 * self.together / (self.learned + self.true)


def count_firing(
    true: Int[Tensor, "b k"], together: Bool[Tensor, "m b k"], fired: Bool[Tensor, "b k"], learned: Int[Tensor, "m n"]
) -> FiringCounts:
    """Counts from lists of true features: which of these slots fired, and in which the feature's match did too.

    `learned` is how often each true feature's match fired; 0 for a feature without a match.
    """
    slots, members = true.long().flatten(), len(learned)
    both = torch.zeros_like(learned).scatter_add_(1, slots.expand(members, -1), (together & fired).flatten(1).long())
    planted = torch.zeros_like(learned[0]).scatter_add_(0, slots, fired.flatten().long())
    return FiringCounts(both, learned, planted.expand_as(learned))


def mean_over_fired(score: Float[Tensor, "m n"], counts: FiringCounts) -> Float[Tensor, "m"]:
    """The mean over true features that fired at all; a match that never fired scores 0."""
    fired = counts.true > 0
    return torch.where(fired, score.nan_to_num(0), 0).sum(-1) / fired.sum(-1)


@dataclass(frozen=True)
class Moments:
    """Sums over samples: how many, of x, of |x|², and of |x - x̂|² per member; moments of parts add up."""

    samples: int
    total: Float[Tensor, "d"]
    square: Float[Tensor, ""]
    residual: Float[Tensor, "m"]

    @classmethod
    def of(cls, x: Float[Tensor, "b d"], reconstruction: Float[Tensor, "m b d"]) -> "Moments":
        """From inputs and each member's reconstruction of them."""
        x = x.double()
        residual = (reconstruction.double() - x).square().sum((1, 2))
        return cls(len(x), x.sum(0), x.square().sum(), residual)

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(
            self.samples + other.samples,
            self.total + other.total,
            self.square + other.square,
            self.residual + other.residual,
        )

    def reconstruction_error(self) -> Float[Tensor, "m"]:
        """The mean squared error per sample and dimension."""
        return self.residual / (self.samples * len(self.total))

    def variance(self) -> Float[Tensor, ""]:
        """The reconstruction error of always answering the mean."""
        centred = self.square - self.total.square().sum() / self.samples
        return centred / (self.samples * len(self.total))

    def explained_variance(self) -> Float[Tensor, "m"]:
        """The share of the inputs' variance that the reconstruction keeps."""
        return 1 - self.reconstruction_error() / self.variance()
