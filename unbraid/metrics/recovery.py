"""How much of the planted truth a dictionary found: best cosine per true feature, and one-to-one matching.

MMCS = mean over true features t of  max over learned features f of  cos(t, f)        (signed)
MCC  = mean cosine over the best one-to-one matching of true to learned features      (Hungarian)
MMCS with a larger dictionary = mean over its own entries of the largest cosine with any entry of the larger
"""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from unbraid.axes import Float, Int, Tensor

FOUND = 0.9
"""The cosine from which a true feature counts as found."""


def cosines(truth: Float[Tensor, "n d"], directions: Float[Tensor, "m f d"]) -> Float[Tensor, "m n f"]:
    """The cosine of every true with every learned direction; a zero row has cosine 0 with everything."""
    unit = torch.nn.functional.normalize
    return unit(truth, dim=-1) @ unit(directions, dim=-1).mT


def best_cosine(cosine: Float[Tensor, "m n f"]) -> Float[Tensor, "m n"]:
    """The representativeness of each true feature: its cosine with the learned feature most like it."""
    return cosine.amax(-1)


def mmcs(cosine: Float[Tensor, "m n f"]) -> Float[Tensor, "m"]:
    return best_cosine(cosine).mean(-1)


def mmcs_with(own: Float[Tensor, "m f d"], larger: Float[Tensor, "m g d"], block: int = 1024) -> Float[Tensor, "m"]:
    """How much of each member's own entries another dictionary has too; a block of entries at a time."""
    parts = [
        best_cosine(cosines(rows, other[None]))[0]
        for mine, other in zip(own, larger, strict=True)
        for rows in mine.split(block)
    ]
    return torch.cat(parts).reshape(len(own), -1).mean(-1)


def expected_best(entries: int, dimensions: int) -> float:
    """What a direction's best cosine is with so many random ones, on average: (1 + cosine) / 2 has a Beta law."""
    from scipy import integrate, stats  # takes half a second, and only grids ask

    law = stats.beta((dimensions - 1) / 2, (dimensions - 1) / 2, loc=-1, scale=2)
    cosine = np.linspace(-1, 1, 20_001)
    return float(1 - integrate.trapezoid(law.cdf(cosine) ** entries, cosine))


def match(cosine: Float[Tensor, "m n f"]) -> Int[Tensor, "m n"]:
    """The learned feature each true feature is matched with, one to one; -1 where a small dictionary has none left."""
    matched = torch.full(cosine.shape[:2], -1, dtype=torch.long)
    for member, table in enumerate(cosine.double().numpy()):
        true, learned = linear_sum_assignment(table, maximize=True)
        matched[member, torch.from_numpy(true)] = torch.from_numpy(learned.astype(np.int64))
    return matched


def matched_cosine(cosine: Float[Tensor, "m n f"], matched: Int[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """The cosine of each true feature with its match; 0 where it has none."""
    return cosine.gather(-1, matched.clamp_min(0)[..., None])[..., 0] * (matched >= 0)


def mcc(cosine: Float[Tensor, "m n f"], matched: Int[Tensor, "m n"]) -> Float[Tensor, "m"]:
    return matched_cosine(cosine, matched).sum(-1) / (matched >= 0).sum(-1)


def recovered(
    cosine: Float[Tensor, "m n f"], matched: Int[Tensor, "m n"], at_least: float = FOUND
) -> Float[Tensor, "m"]:
    """The share of true features whose one-to-one match has at least this cosine."""
    return (matched_cosine(cosine, matched) >= at_least).float().mean(-1)
