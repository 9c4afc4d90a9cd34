"""Which features fire together in one pass, asked of all pairs without a matrix of all pairs.

raw      Σ_b f_i f_j
cosine   Σ_b f_i f_j / (|f_i| |f_j|)
pearson  Σ_b (f_i - mean_i)(f_j - mean_j) / (their lengths)

All three are (Σ_b f_i f_j - offset_i offset_j) · scale_i scale_j. Only pairs i < j that fired together in some sample
have a score. (One that never did has |pearson| ≤ √(p_i p_j / (1-p_i)(1-p_j)), with p the share of samples fired in.)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.devices import place

Kind = Literal["raw", "cosine", "pearson"]

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

    def to(self, device: torch.device | str) -> "Chosen":
        """The same on another device."""
        tensors = (self.member, self.first, self.second, self.score, self.weight)
        return Chosen(*(place(tensor, device) for tensor in tensors))

    def sum(self, values: Float[Tensor, "p"], members: int) -> Float[Tensor, "m"]:
        """Σ over the pairs of each member of these values, each as often as its pair counts."""
        return values.new_zeros(members).index_add(0, self.member, self.weight.to(values.dtype) * values)


@dataclass(frozen=True)
class Pairs(ABC):
    """The pairs of one pass; what was asked once is remembered."""

    samples: int
    width: int
    sums: np.ndarray
    """Σ_b f of every feature, `m f`."""
    squares: np.ndarray
    """Σ_b f² of every feature, `m f`."""
    known: dict[Any, Any] = field(default_factory=dict, init=False)
    device: torch.device = field(default=torch.device("cpu"), kw_only=True)
    """Where the codes are, and answers are wanted; pairs are counted on the CPU."""

    @abstractmethod
    def blocks(self, kind: Kind) -> Iterator[Block]:
        """The scores of all pairs that fired together, member by member."""

    @abstractmethod
    def pull(self, chosen: Chosen, weights: np.ndarray, own: np.ndarray) -> Float[Tensor, "m b k"]:
        """The gradient in the values that fired, 0 elsewhere: Σ over pairs of weight_ij · f_j, less own_i · f_i."""

    @abstractmethod
    def sizes(self) -> Float[Tensor, "m f"]:
        """Σ_b |f| of every feature."""

    @property
    def members(self) -> int:
        return len(self.sums)

    def how_many(self, share: Tensor | float, asked: Tensor | None) -> list[int]:
        """So many pairs as are asked for of each member; where none are, this share of all pairs, and at least one."""
        every = self.width * (self.width - 1) // 2
        default = (torch.as_tensor(share).cpu().double() * every).floor().clamp_min(1).expand(self.members)
        asked = None if asked is None else asked.cpu().double()
        counts = default if asked is None else torch.where(asked > 0, asked, default)
        return [min(int(count), every) for count in counts]

    def line(self, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
        """Offset and scale of every feature, which make scores of sums."""
        offset = self.sums / np.sqrt(self.samples) if kind == "pearson" else np.zeros_like(self.sums)
        lengths = np.sqrt(np.maximum(self.squares - offset**2, 0))
        alive = lengths > 1e-4 * np.sqrt(self.squares)  # what fires always alike has no correlation
        scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=alive)
        return offset, np.ones_like(scale) if kind == "raw" else scale

    def moments(self, kind: Kind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """How many pairs of each member have a score, the sum of |score|, and that of its square."""
        totals = np.zeros((3, self.members))
        for block in self.blocks(kind):
            sizes = np.abs(block.scores).astype(np.float64)
            totals[:, block.member] += (
                np.count_nonzero(sizes),
                sizes.sum(),
                np.square(sizes).sum(),
            )  # no BLAS: its threads spin
        return totals[0], totals[1], totals[2]

    def above(self, kind: Kind, floors: Sequence[float]) -> np.ndarray:
        """How many pairs of each member have |score| above its floor."""
        counts = np.zeros(self.members)
        for block in self.blocks(kind):
            counts[block.member] += np.count_nonzero(np.abs(block.scores) > floors[block.member])
        return counts

    def exceeding(self, kind: Kind, floors: Sequence[float]) -> Chosen:
        """The pairs of each member with |score| above its floor, each once."""
        picked = [pick(block, np.abs(block.scores) > floors[block.member]) for block in self.blocks(kind)]
        return join(picked, [np.ones(len(some[3])) for some in picked]).to(self.device)

    def top(self, kind: Kind, counts: Sequence[int], copies: int = 1) -> Chosen:
        """Of each member's pairs, each there so many times, the `counts` largest in |score|.

        Those that tie for the last places share them, so that no order of features matters.
        """
        key = (kind, tuple(counts), copies)
        if key not in self.known:
            self.known[key] = self._top(kind, counts, copies)
        return self.known[key]

    def _top(self, kind: Kind, counts: Sequence[int], copies: int) -> Chosen:
        best: dict[int, Picked] = {}
        for block in self.blocks(kind):
            needed = -(-counts[block.member] // copies)
            picked = pick(block, among_largest(np.abs(block.scores), needed))
            if block.member in best:
                picked = tuple(np.concatenate(arrays) for arrays in zip(best[block.member], picked, strict=True))
                largest = among_largest(np.abs(picked[3]), needed)
                picked = tuple(array[largest] for array in picked)
            best[block.member] = picked
        weights = [shares(np.abs(best[m][3]), n, copies) for m, n in enumerate(counts)]
        return join(list(best.values()), weights).to(self.device)

    def differentiable(self, kind: Kind, chosen: Chosen, values: Float[Tensor, "m b k"]) -> Float[Tensor, "p"]:
        """The scores of chosen pairs as functions of the values that fired."""
        return _Scores.apply(values, self, chosen, kind)


class _Scores(torch.autograd.Function):
    """∂cosine/∂f_i = f_j / (|f_i| |f_j|) - cosine · f_i / |f_i|²        ∂raw/∂f_i = f_j"""

    @staticmethod
    def forward(ctx: Any, _: Tensor, pairs: Pairs, chosen: Chosen, kind: Kind) -> Tensor:
        ctx.asked = pairs, chosen, kind
        return chosen.score.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        pairs, chosen, kind = ctx.asked
        device, chosen = pairs.device, chosen.to("cpu")
        slopes, scale, width = grad_outputs[0].cpu().numpy(), pairs.line(kind)[1].reshape(-1), pairs.width
        member = chosen.member.numpy() * width
        first, second = member + chosen.first.numpy(), member + chosen.second.numpy()
        own = np.zeros(len(scale))
        if kind == "cosine":
            own += np.bincount(first, slopes * chosen.score.numpy(), len(scale))
            own += np.bincount(second, slopes * chosen.score.numpy(), len(scale))
        weights = slopes * scale[first] * scale[second]
        pulled = pairs.pull(chosen, weights.astype(scale.dtype), (own * scale**2).astype(scale.dtype))
        return pulled.to(device), None, None, None


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


def join(picked: list[Picked], weights: list[np.ndarray]) -> Chosen:
    member, first, second, score = (torch.from_numpy(np.concatenate(arrays)) for arrays in zip(*picked, strict=True))
    return Chosen(member.long(), first.long(), second.long(), score, torch.from_numpy(np.concatenate(weights)))
