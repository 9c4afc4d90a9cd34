"""Co-activation of sparse codes: a table of the pairs that fired together, made at the cost of what fired together.

Time is Σ_b k_b², memory at most one entry for two slots of one sample; nothing is as large as all pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from unbraid.axes import Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.coactivation import kernels
from unbraid.dictionaries.coactivation.pairs import Block, Chosen, Kind, Located, Pairs


@dataclass(frozen=True)
class Listed(Pairs):
    """Pairs of codes in float32 that are mostly 0."""

    shape: tuple[int, ...]
    slots: np.ndarray
    """Where in the codes each value that fired stands, in ascending order."""
    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, codes: Codes) -> "Listed":
        members, samples, k = codes.values.shape
        flat = codes.values.detach().reshape(-1).numpy()
        slots = np.flatnonzero(flat != 0)
        values, member = flat[slots], slots // (samples * k)
        feature = slots % k if codes.features is None else codes.features.reshape(-1).numpy()[slots]
        rows, size = member * codes.width + feature, members * codes.width
        sums = np.bincount(rows, values, size).reshape(members, -1)
        squares = np.bincount(rows, values.astype(np.float64) ** 2, size).reshape(members, -1)
        return cls(samples, codes.width, sums, squares, (members, samples, k), slots, rows, values)

    def blocks(self, kind: Kind) -> Iterator[Block]:
        scores, rooms = self._scores(kind), self._table.rooms
        for member in range(self.members):
            start, stop = rooms[member * self.width], rooms[(member + 1) * self.width]
            rows = rooms[member * self.width : (member + 1) * self.width]

            def locate(places: np.ndarray, start: int = start, rows: np.ndarray = rows) -> Located:
                return np.searchsorted(rows, start + places, "right") - 1, self._table.partners[start + places]

            yield Block(member, scores[start:stop], locate)

    def pull(self, chosen: Chosen, weights: np.ndarray, own: np.ndarray) -> Tensor:
        lists, member = self._lists, chosen.member.numpy() * self.width
        first, second = member + chosen.first.numpy(), member + chosen.second.numpy()
        edges, partners = np.zeros(self.sums.size + 1, np.int64), np.empty(2 * len(first), np.int32)
        both, in_values = np.empty(2 * len(first), np.float32), np.zeros(len(self.slots), np.float32)
        kernels.both_ways(first, second, weights.astype(np.float32), self.width, edges, partners, both)
        kernels.pull(
            lists.starts,
            lists.events,
            lists.begins,
            lists.ends,
            lists.features,
            lists.values,
            self.width,
            edges,
            partners,
            both,
            own.astype(np.float32),
            in_values,
        )
        gradient = np.zeros(self.shape, np.float32)
        gradient.reshape(-1)[self.slots[lists.order]] = in_values
        return torch.from_numpy(gradient)

    def sizes(self) -> Tensor:
        sizes = np.bincount(self.rows, np.abs(self.values), self.sums.size)
        return torch.from_numpy(sizes.astype(np.float32).reshape(self.sums.shape))

    @cached_property
    def _lists(self) -> "_Lists":
        events, samples = len(self.slots), self.slots // self.shape[2]
        starts, bounds = np.zeros(self.sums.size + 1, np.int64), np.zeros(self.shape[0] * self.samples + 1, np.int64)
        places, order, features = (np.empty(events, np.int64), np.empty(events, np.int64), np.empty(events, np.int32))
        values, rooms = np.empty(events, np.float32), np.zeros(self.sums.size + 1, np.int64)
        kernels.arrange(
            samples, self.rows, self.values, self.width, starts, places, bounds, order, features, values, rooms
        )
        return _Lists(starts, places, bounds[samples], bounds[samples + 1], order, features, values, rooms)

    @cached_property
    def _table(self) -> "_Table":
        lists = self._lists
        partners, sums = np.empty(lists.rooms[-1], np.int32), np.zeros(lists.rooms[-1], np.float32)
        kernels.pair_sums(
            lists.starts,
            lists.events,
            lists.ends,
            lists.features,
            lists.values,
            self.width,
            lists.rooms,
            partners,
            sums,
        )
        return _Table(lists.rooms, partners, sums)

    def _scores(self, kind: Kind) -> np.ndarray:
        if kind == "raw":
            return self._table.sums
        if kind not in self.known:
            offset, scale = (array.reshape(-1).astype(np.float32) for array in self.line(kind))
            table, scores = self._table, np.zeros(len(self._table.sums), np.float32)
            kernels.score(table.rooms, table.partners, table.sums, offset, scale, self.width, scores)
            self.known[kind] = scores
        return self.known[kind]


@dataclass(frozen=True)
class _Lists:
    """What fired, by row and by sample, as `kernels.py` explains; sample s of place p begins and ends its list."""

    starts: np.ndarray
    events: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    order: np.ndarray
    features: np.ndarray
    values: np.ndarray
    rooms: np.ndarray


@dataclass(frozen=True)
class _Table:
    """The partners of every row and their sums; what a row's room has too much holds the sum 0."""

    rooms: np.ndarray
    partners: np.ndarray
    sums: np.ndarray
