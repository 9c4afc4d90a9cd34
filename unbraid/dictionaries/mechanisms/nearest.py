"""Which features are nearest to each feature: short lists of features, found without a whole matrix of cosines."""

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.dictionaries import kernels

EMPTY = -1
"""What a place of a list holds when nobody is in it."""
BLOCK_BYTES = 8 << 20
"""About how many cosines are made at a time."""


def nearest_by_cosine(directions: Float[Tensor, "m f d"], places: int) -> Int[Tensor, "m f r"]:
    """Of each unit row, the others with the largest positive cosines, in no order."""
    members, features, _ = directions.shape
    lists = np.full((members, features, places), EMPTY, np.int32)
    values, counts = np.empty((features, places), np.float32), np.zeros(features, np.int64)
    no_bias, size = np.zeros(features, np.float32), max(1, BLOCK_BYTES // (4 * features))
    for member in range(members):
        rows = directions[member].float()
        for start in range(0, features, size):
            some = slice(start, start + size)
            cosines = rows[some] @ rows.T
            cosines.diagonal(start).fill_(-1)  # nobody is near itself
            kernels.append_largest(cosines.numpy(), no_bias, lists[member, some], values[some], counts[some])
    return torch.from_numpy(lists)


def without(lists: Int[Tensor, "m f r"], gone: Bool[Tensor, "m f"]) -> Int[Tensor, "m f r"]:
    """The lists with these features taken out of them."""
    if not gone.any():
        return lists
    among = gone.gather(1, lists.clamp_min(0).long().flatten(1)).view(lists.shape)
    return lists.masked_fill(among, EMPTY)
