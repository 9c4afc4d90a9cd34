"""Batches of rows in a shuffled order: the same seed, split and position always give the same rows.

A tenth of every shard, from its middle, is held out, cut where a document begins: most for evaluation, some for
tracking. The rest is for training. Each epoch goes once through all rows of its split, in an order of its own.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from unbraid.axes import Int
from unbraid.capture.shards import Rows, Shards
from unbraid.capture.shuffle import shuffled
from unbraid.errors import Refusal

CUTS = (0.45, 0.53, 0.55)
"""Evaluation is between the first two of these shares of a shard, tracking between the last two."""
ENOUGH = 20
"""Cuts fall between documents where a shard has so many, else between windows, else anywhere."""


class Order:
    """Who comes when: rows of a split, place by place."""

    def __init__(self, shards: Shards, split: str, seed: int) -> None:
        self.shards, self.split, self.seed = shards, split, seed

    def rows(self, position: int, size: int) -> Rows:
        """The rows of batch number `position`."""
        places = np.arange(position * size, (position + 1) * size, dtype=np.int64)
        found = np.empty(size, np.int64)
        for epoch in np.unique(places // len(self)).tolist():
            these = places // len(self) == epoch
            found[these] = shuffled(places[these] % len(self), len(self), self.seed, "order", self.split, epoch)
        return self._row(found)

    def in_order(self, amount: int) -> Rows:
        """The first so many rows of the split as they lie, or all there are."""
        return self._row(np.arange(min(amount, len(self)), dtype=np.int64))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _row(self, numbers: Int[np.ndarray, "b"]) -> Rows:
        """The rows with these numbers among those of the split."""
        piece = np.searchsorted(self._ends, numbers, side="right")
        return numbers - (self._ends[piece] - self._lengths[piece]) + self._begins[piece]

    @cached_property
    def _pieces(self) -> Int[np.ndarray, "n 2"]:
        """Where the rows of this split begin and end, piece by piece."""
        pieces: list[tuple[int, int]] = []
        for number, start in enumerate(self.shards.starts[:-1].tolist()):
            low, middle, high = (start + cut for cut in _cuts(self.shards, number))
            parts = {"evaluation": [(low, middle)], "tracking": [(middle, high)]}
            pieces += parts.get(self.split, [(start, low), (high, int(self.shards.starts[number + 1]))])
        kept = [piece for piece in pieces if piece[1] > piece[0]]
        if not kept:
            raise Refusal(f"{self.shards.folder} holds too few tokens for a split '{self.split}'; accepted: 50 or more")
        return np.array(kept)

    @cached_property
    def _begins(self) -> Int[np.ndarray, "n"]:
        return self._pieces[:, 0]

    @cached_property
    def _lengths(self) -> Int[np.ndarray, "n"]:
        return self._pieces[:, 1] - self._pieces[:, 0]

    @cached_property
    def _ends(self) -> Int[np.ndarray, "n"]:
        return np.cumsum(self._lengths)


def _cuts(shards: Shards, number: int) -> Sequence[int]:
    """Where a shard is cut: the places nearest to the shares wanted."""
    arrays = shards.shard(number)
    documents, positions = np.asarray(arrays["documents"]), np.asarray(arrays["positions"])
    amount = len(documents)
    by_document = np.flatnonzero(documents[1:] != documents[:-1]) + 1
    by_window = np.flatnonzero((documents[1:] != documents[:-1]) | (positions[1:] <= positions[:-1])) + 1
    places = next((some for some in (by_document, by_window) if len(some) >= ENOUGH), np.arange(amount + 1))
    return [int(places[np.abs(places - cut * amount).argmin()]) for cut in CUTS]
