"""How much a dictionary repeats itself: how nearly each feature's direction is that of another.

redundancy = mean over features i that fire of  max over other features j that fire of  |cos(w_i, w_j)|
"""

import torch

from unbraid.axes import Float, Int, Tensor


def redundancy(directions: Float[Tensor, "m f d"], counts: Int[Tensor, "m f"], block: int = 1024) -> Float[Tensor, "m"]:
    """From directions and how often each fired; 0 where fewer than two did. A block of features at a time."""
    return torch.stack([_of_one(rows[fired > 0], block) for rows, fired in zip(directions, counts, strict=True)])


def _of_one(rows: Float[Tensor, "f d"], block: int) -> Float[Tensor, ""]:
    if len(rows) < 2:
        return rows.new_zeros(())
    unit = torch.nn.functional.normalize(rows, dim=-1)
    nearest: list[Tensor] = []
    for first in range(0, len(unit), block):
        cosine = (unit[first : first + block] @ unit.T).abs()
        cosine.diagonal(first).zero_()
        nearest.append(cosine.amax(-1))
    return torch.cat(nearest).mean()
