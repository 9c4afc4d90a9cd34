"""Center and scale activations before a dictionary is trained on them.

y = (x - mean) / scale      center: the mean of the rows; scale: such that rows of y have length √d on average
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from unbraid.axes import Float, Tensor
from unbraid.storage.files import Arrays

Normalize = Literal["none", "center", "scale", "center_and_scale"]
RENAMED_NORMALIZE = {"centre": "center", "both": "center_and_scale"}
CENTERED, SCALED = ("center", "center_and_scale"), ("scale", "center_and_scale")


@dataclass(frozen=True)
class Normalization:
    """Subtract `mean`, then divide by `scale`.

    Parameters
    ----------
    mean
        What is subtracted, of shape d, in the units of the activations; zeros where nothing is centered.
    scale
        What is divided by, in the units of the activations; 1 where nothing is scaled.

    Example
    -------
    >>> import torch
    >>> normalization = Normalization.of(torch.tensor([[1.0, 3.0], [3.0, 3.0]]), "center")
    >>> normalization.apply(torch.tensor([4.0, 4.0])).tolist()
    [2.0, 1.0]
    """

    mean: Float[Tensor, "d"]
    scale: float

    @classmethod
    def of(cls, rows: Float[Tensor, "b d"], kind: Normalize) -> "Normalization":
        """The mean and scale of these rows."""
        mean = rows.double().mean(0).float() if kind in CENTERED else torch.zeros(rows.shape[1])
        length = float((rows - mean).norm(dim=1).double().mean())
        scale = length / math.sqrt(rows.shape[1]) if kind in SCALED and length > 0 else 1.0
        return cls(mean, scale)

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> "Normalization":
        return cls(torch.from_numpy(arrays["mean"]), float(arrays["scale"][0]))

    def arrays(self) -> Arrays:
        return {"mean": self.mean.numpy(), "scale": torch.tensor([self.scale], dtype=torch.float64).numpy()}

    def apply(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """From the model's units to the dictionary's."""
        return (x - self.mean) / self.scale

    def undo(self, y: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """From the dictionary's units to the model's."""
        return y * self.scale + self.mean
