"""Choosing among the scores of pairs: the largest, with ties that no order of features decides."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor

Located = tuple[np.ndarray, np.ndarray]
"""First and second feature of some pairs."""

Picked = tuple[np.ndarray, ...]
"""Member, first, second and score of some pairs."""

SAMPLED = 16
"""One score in so many is looked at first."""


@dataclass(frozen=True)
class Block:
    """The scores of some pairs of one member, 0 where a pair has none, and which pair each place is."""

    member: int
    scores: np.ndarray
    locate: Callable[[np.ndarray], Located]


@dataclass(frozen=True)
class Chosen:
    """Some pairs, of all members: which, their scores, and how often each counts."""

    member: Int[Tensor, "p"]
    first: Int[Tensor, "p"]
    second: Int[Tensor, "p"]
    score: Float[Tensor, "p"]
    weight: Float[Tensor, "p"]

    def sum(self, values: Float[Tensor, "p"], members: int) -> Float[Tensor, "m"]:
        """Σ over the pairs of each member of these values, each as often as its pair counts."""
        return values.new_zeros(members).index_add(0, self.member, self.weight.to(values.dtype) * values)


def pick(block: Block, mask: np.ndarray) -> Picked:
    places = np.flatnonzero(mask)
    first, second = block.locate(places)
    return np.full(len(places), block.member), first, second, block.scores[places]


def among_largest(sizes: np.ndarray, n: int) -> np.ndarray:
    """Which are among the n largest, with all that tie for last; what is 0 never is."""
    least = _nth_largest(sizes, n)
    return sizes >= least if least > 0 else sizes > 0


def _nth_largest(sizes: np.ndarray, n: int) -> float:
    """0 where there are fewer. A few of them tell which are surely too small, and only the rest is sorted out."""
    if not 0 < n <= len(sizes):
        return 0.0
    few = sizes[::SAMPLED]
    rank = int(1.2 * n / SAMPLED) + 8
    if rank < len(few):
        large = sizes[sizes >= np.partition(few, len(few) - rank)[len(few) - rank]]
        sizes = large if len(large) >= n else sizes
    return float(np.partition(sizes, len(sizes) - n)[len(sizes) - n])


def shares(sizes: np.ndarray, count: int, copies: int) -> np.ndarray:
    """How often each of the largest counts: `copies` times, but those that tie for last share what is left."""
    weights = np.full(len(sizes), float(copies))
    if len(sizes) * copies > count:
        last = sizes == sizes.min()
        weights[last] = (count - copies * (len(sizes) - last.sum())) / last.sum()
    return weights


def join(found: list[Picked], weights: list[np.ndarray]) -> Chosen:
    member, first, second, score = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*found, strict=True))
    return Chosen(member.long(), first.long(), second.long(), score, torch.from_numpy(np.concatenate(weights)))
