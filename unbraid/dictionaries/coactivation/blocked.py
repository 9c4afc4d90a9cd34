"""Co-activation of dense codes: FᵀF, a block of features at a time, so that memory stays bounded.

Short on purpose: with one block it is the specification that the tests hold the fast way against.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.coactivation.pairs import Block, Chosen, Kind, Located, Pairs

BLOCK = 1 << 20
"""So many pairs are looked at at a time."""
KEPT = 1 << 24
"""Where there are no more pairs than this, the blocks are kept for the next question."""


@dataclass(frozen=True)
class Blocked(Pairs):
    """Pairs of codes written out over all features."""

    codes: Codes

    @classmethod
    def of(cls, codes: Codes) -> "Blocked":
        held = Codes(codes.features, codes.values.detach(), codes.width)
        dense = held.to_dense()
        return cls(dense.shape[1], codes.width, dense.sum(1).double().numpy(), _squares(dense).numpy(), held)

    def blocks(self, kind: Kind) -> Iterator[Block]:
        if kind not in self.known and self.members * self.width**2 <= KEPT:
            self.known[kind] = list(self._make_blocks(kind))
        return iter(self.known[kind]) if kind in self.known else self._make_blocks(kind)

    def _make_blocks(self, kind: Kind) -> Iterator[Block]:
        offsets, scales = self.line(kind)
        height = max(1, BLOCK // self.width)
        for member, values in enumerate(self.codes.to_dense()):
            offset, scale = (torch.from_numpy(array[member]).to(values.dtype) for array in (offsets, scales))
            for low in range(0, self.width, height):
                rows = slice(low, low + height)
                scores = values[:, rows].T @ values[:, low:]
                scores.triu_(diagonal=1)
                if kind == "pearson":
                    scores -= torch.outer(offset[rows], offset[low:]).mul_(scores != 0)
                scores.mul_(scale[rows, None]).mul_(scale[low:])
                yield Block(member, scores.flatten().numpy(), _locator(low, self.width - low))

    def pull(self, chosen: Chosen, weights: np.ndarray, own: np.ndarray) -> Float[Tensor, "m b k"]:
        dense = self.codes.to_dense()
        gradient = -dense * torch.from_numpy(own).to(dense.dtype).view(self.members, 1, self.width)
        for member, values in enumerate(dense):
            mine = chosen.member == member
            ends = torch.stack([chosen.first[mine], chosen.second[mine]])
            weight = torch.from_numpy(weights).to(dense.dtype)[mine]
            square = torch.sparse_coo_tensor(ends, weight, (self.width, self.width), check_invariants=False)
            gradient[member] += torch.sparse.mm(square, values.T).T + torch.sparse.mm(square.t(), values.T).T
        gradient *= dense != 0
        return gradient if self.codes.features is None else gradient.gather(-1, self.codes.features.long())

    def sizes(self) -> Float[Tensor, "m f"]:
        return self.codes.to_dense().abs().sum(1)


def _squares(dense: Float[Tensor, "m b f"]) -> Float[Tensor, "m f"]:
    return torch.linalg.vector_norm(dense, dim=1, dtype=torch.float64).square()


def _locator(low: int, beyond: int) -> Callable[[np.ndarray], Located]:
    return lambda places: (low + places // beyond, low + places % beyond)
