"""How strongly the features that fire most alike do so.

correlation = mean |Pearson| over the top pairs: `SHARE` of the pairs of features that can be judged, at least `FEWEST`

A feature is judged if it fired in at least `LEAST` samples: of two that fired once, together, the correlation is 1.
"""

import torch

from unbraid.axes import Float, Tensor
from unbraid.coactivation import find_pairs
from unbraid.codes import Codes

SHARE, FEWEST, LEAST = 0.001, 10, 10


def correlation(codes: Codes) -> Float[Tensor, "m"]:
    """A pair that never fired together counts as 0; so does everything where there is no pair to judge."""
    judged = codes.counts() >= LEAST
    pairs = find_pairs(_only(codes, judged))
    alive = judged.sum(-1)
    every = alive * (alive - 1) // 2
    counts = (SHARE * every).long().clamp_min(FEWEST).minimum(every).clamp_min(1)
    top = pairs.top("pearson", counts.tolist())
    return top.sum(top.score.double().abs().clamp_max(1), pairs.members) / counts


def _only(codes: Codes, kept: Tensor) -> Codes:
    """The codes with all other features silent."""
    if codes.features is None:
        return Codes.dense(codes.values * kept[:, None])
    of_slots = kept.gather(1, codes.features.long().flatten(1)).view(codes.values.shape)
    return Codes(codes.features, torch.where(of_slots, codes.values, 0), codes.width)
