"""Which features fire together: of sparse codes by lists, of dense ones by blocks of FᵀF; both answer alike."""

from dataclasses import replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.coactivation.blocked import Blocked
from unbraid.dictionaries.coactivation.listed import Listed
from unbraid.dictionaries.coactivation.pairs import Chosen, Kind, Pairs

PRODUCT_IS_FASTER = 32
"""By about this factor a matrix product is faster at a multiplication than a loop over lists."""
MOST_PAIRS = 1 << 25
"""No table is made longer than this."""

TOP_SHARE, FEWEST_PAIRS, LEAST_SAMPLES = 0.001, 10, 10
"""`correlation` is over this share of the pairs and at least so many, of features that fired in so many samples."""


def find_pairs(codes: Codes) -> Pairs:
    """The pairs of these codes, the cheaper way; a function of the codes alone. They are counted on the CPU."""
    device, codes = codes.values.device, Codes(codes.features, codes.values.detach(), codes.width).to("cpu")
    sparse = codes.values.dtype == torch.float32 and _is_sparse(codes)
    return replace(Listed.of(codes) if sparse else Blocked.of(codes), device=device)


def _is_sparse(codes: Codes) -> bool:
    members, samples, slots = codes.values.shape
    all_pairs = members * codes.width**2 / 2
    most = min(samples * all_pairs / PRODUCT_IS_FASTER, MOST_PAIRS)
    return members * samples * slots**2 / 2 <= most or float(codes.l0().double().square().sum()) / 2 <= most


def correlation(codes: Codes) -> Float[Tensor, "m"]:
    """How strongly the features that fire most alike do so: the mean |Pearson| over the top pairs.

    A feature is judged if it fired in enough samples: of two that fired once, together, the correlation is 1. A pair
    that never fired together counts as 0; so does everything where there is no pair to judge.
    """
    codes = codes.to("cpu")
    judged = codes.counts() >= LEAST_SAMPLES
    pairs = find_pairs(_keep_features(codes, judged))
    alive = judged.sum(-1)
    every = alive * (alive - 1) // 2
    counts = (TOP_SHARE * every).long().clamp_min(FEWEST_PAIRS).minimum(every).clamp_min(1)
    top = pairs.top("pearson", counts.tolist())
    return top.sum(top.score.double().abs().clamp_max(1), pairs.members) / counts


def _keep_features(codes: Codes, kept: Tensor) -> Codes:
    """The codes with all other features silent."""
    if codes.features is None:
        return Codes.dense(codes.values * kept[:, None])
    of_slots = kept.gather(1, codes.features.long().flatten(1)).view(codes.values.shape)
    return Codes(codes.features, torch.where(of_slots, codes.values, 0), codes.width)


__all__ = ["Chosen", "Kind", "Pairs", "correlation", "find_pairs"]
