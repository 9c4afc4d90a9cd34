"""Bring activations to a common place and size before a dictionary sees them.

y = (x - mean) / scale      centre: mean is that of the rows; scale: such that rows of y have length √d on average
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from unbraid.axes import Float, Tensor
from unbraid.files import Arrays

Kind = Literal["none", "centre", "scale", "both"]


@dataclass(frozen=True)
class Normalisation:
    mean: Float[Tensor, "d"]
    scale: float

    @classmethod
    def of(cls, rows: Float[Tensor, "b d"], kind: Kind) -> "Normalisation":
        """What these rows need."""
        mean = rows.double().mean(0).float() if kind in ("centre", "both") else torch.zeros(rows.shape[1])
        length = float((rows - mean).norm(dim=1).double().mean())
        scale = length / math.sqrt(rows.shape[1]) if kind in ("scale", "both") and length > 0 else 1.0
        return cls(mean, scale)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Normalisation":
        return cls(torch.from_numpy(arrays["mean"]), float(arrays["scale"][0]))

    def arrays(self) -> Arrays:
        return {"mean": self.mean.numpy(), "scale": torch.tensor([self.scale], dtype=torch.float64).numpy()}

    def apply(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return (x - self.mean) / self.scale

    def undo(self, y: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return y * self.scale + self.mean
