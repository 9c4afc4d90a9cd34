"""How well the inputs are reconstructed, from sums that add up over batches.

reconstruction error = mean over samples and dimensions of (x - x̂)²
explained variance   = 1 - Σ |x - x̂|² / Σ |x - mean x|²
"""

from dataclasses import dataclass

from unbraid.axes import Float, Tensor


@dataclass(frozen=True)
class Moments:
    """Sums over samples: how many, of x, of |x|², and of |x - x̂|² per member; moments of parts add up."""

    samples: int
    total: Float[Tensor, "d"]
    square: Float[Tensor, ""]
    residual: Float[Tensor, "m"]

    @classmethod
    def of(cls, x: Float[Tensor, "b d"], reconstruction: Float[Tensor, "m b d"]) -> "Moments":
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
        return self.residual / (self.samples * len(self.total))

    def variance(self) -> Float[Tensor, ""]:
        """The reconstruction error of always answering the mean."""
        centred = self.square - self.total.square().sum() / self.samples
        return centred / (self.samples * len(self.total))

    def explained_variance(self) -> Float[Tensor, "m"]:
        return 1 - self.reconstruction_error() / self.variance()
