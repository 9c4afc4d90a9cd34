"""Which features fire together: of sparse codes by lists, of dense ones by blocks of FᵀF; both answer alike."""

import torch

from unbraid.coactivation.blocked import Blocked
from unbraid.coactivation.listed import Listed
from unbraid.coactivation.pairs import Kind, Pairs
from unbraid.coactivation.selection import Chosen
from unbraid.codes import Codes

PRODUCT_IS_FASTER = 32
"""By about this factor a matrix product is faster at a multiplication than a loop over lists."""
MOST_PAIRS = 1 << 25
"""No table is made longer than this."""


def find_pairs(codes: Codes) -> Pairs:
    """The pairs of these codes, the cheaper way; a function of the codes alone."""
    return Listed.of(codes) if codes.values.dtype == torch.float32 and _is_sparse(codes) else Blocked.of(codes)


def _is_sparse(codes: Codes) -> bool:
    members, samples, slots = codes.values.shape
    all_pairs = members * codes.width**2 / 2
    most = min(samples * all_pairs / PRODUCT_IS_FASTER, MOST_PAIRS)
    return members * samples * slots**2 / 2 <= most or float(codes.l0().double().square().sum()) / 2 <= most


__all__ = ["Chosen", "Kind", "Pairs", "find_pairs"]
