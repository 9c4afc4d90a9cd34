"""Where to cut every feature for every concept, at the cost of what fired: slots sorted by value, and sums along them.

φ · √(on (n - on)) = (n·true - said·on) / √(said (n - said)),   true = Σ of membership over the `said` highest slots
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unbraid.axes import Float, Int

BLOCK = 300_000
"""Slots times concepts looked at together: a table of them stays near the processor."""


@dataclass(frozen=True)
class Slots:
    """What fired, feature by feature and in each from the highest value down; `starts` of the features that did."""

    rows: Int[np.ndarray, "k"]
    values: Float[np.ndarray, "k"]
    features: Int[np.ndarray, "k"]
    present: Int[np.ndarray, "g"]
    starts: Int[np.ndarray, "g"]

    @classmethod
    def of(cls, rows: np.ndarray, values: np.ndarray, features: np.ndarray) -> "Slots":
        order = np.lexsort((-values, features))
        features = features[order]
        present, starts = np.unique(features, return_index=True)
        return cls(rows[order], values[order], features, present, starts)

    def spread(self, by_feature: np.ndarray) -> np.ndarray:
        """What is known of each feature that fired, for each of its slots."""
        return np.repeat(by_feature, np.diff(self.starts, append=len(self.rows)), axis=-1)


def cut(
    slots: Slots, concepts: np.ndarray, given: np.ndarray | None, on: np.ndarray, amount: int, silent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of the best cuts from above and from below, the better one."""
    shape = (concepts.shape[1], len(silent))
    most, thresholds, sides = np.full(shape, -np.inf), np.full(shape, np.inf), np.ones(shape, np.int8)
    for side in (1, -1):
        allowed = (side * slots.values > 0) | ~silent[slots.features]
        if not allowed.any():
            continue
        part = Slots.of(slots.rows[allowed], side * slots.values[allowed], slots.features[allowed])
        cuts = _between(part, silent)
        for first, last, hits in _blocks(part, concepts, given):
            height, place = _highest(part, hits, on[first:last], amount)
            rows, columns = np.nonzero(height > most[first:last, part.present])
            where = first + rows, part.present[columns]
            most[where] = height[rows, columns]
            thresholds[where], sides[where] = side * cuts[place[rows, columns]], side
    return thresholds, sides


def _between(slots: Slots, silent: np.ndarray) -> np.ndarray:
    """For each slot a threshold that says it and not the next below: half-way, where a number lies between."""
    below = np.append(slots.values[1:], 0.0)
    ends = np.append(slots.starts[1:], len(below)) - 1
    below[ends] = np.where(silent[slots.present], 0.0, slots.values[ends])
    middle = slots.values / 2 + below / 2
    return np.where((middle > below) & (middle < slots.values), middle, slots.values)


def _highest(slots: Slots, hits: np.ndarray, on: np.ndarray, amount: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest √(on (n - on)) · φ over each feature's cuts, and the last slot it says."""
    true = hits.cumsum(1, dtype=np.int32)
    true -= slots.spread(true[:, slots.starts] - hits[:, slots.starts])
    said = np.arange(len(slots.rows)) - slots.spread(slots.starts) + 1
    room = np.sqrt(said * (amount - said) * 1.0)
    scale = np.divide(1.0, room, out=np.zeros_like(room), where=room > 0)
    together = on[:, :1] if on.strides[1] == 0 else slots.spread(on[:, slots.present])  # often one for all features
    height = true * (amount * scale) - together * (said * scale)
    tied = (slots.values[:-1] == slots.values[1:]) & (slots.features[:-1] == slots.features[1:])
    height[:, :-1][:, tied] = -np.inf  # no threshold lies between equals
    most = np.maximum.reduceat(height, slots.starts, axis=1)
    last = np.where(height == slots.spread(most), np.arange(len(said)), -1)
    return most, np.maximum.reduceat(last, slots.starts, axis=1)


def count(
    slots: Slots, concepts: np.ndarray, given: np.ndarray | None, thresholds: np.ndarray, sides: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often each concept is truly said, truly beyond what is given, and said at all."""
    true, added, said = (np.zeros(thresholds.shape, np.int64) for _ in range(3))
    fresh = np.ones(len(slots.rows), bool) if given is None else ~given[slots.rows, slots.features]
    for first, last, hits in _blocks(slots, concepts, given) if len(slots.rows) else ():
        side, where = sides[first:last, slots.present], (slice(first, last), slots.present)
        beyond = slots.spread(side) * slots.values >= slots.spread(side * thresholds[where])
        said[where] = np.add.reduceat(beyond, slots.starts, axis=1, dtype=np.int64)
        true[where] = np.add.reduceat(beyond & hits, slots.starts, axis=1, dtype=np.int64)
        added[where] = np.add.reduceat(beyond & hits & fresh, slots.starts, axis=1, dtype=np.int64)
    return true, added, said


def _blocks(slots: Slots, concepts: np.ndarray, given: np.ndarray | None) -> Iterator[tuple[int, int, np.ndarray]]:
    """A few concepts at a time: which of them, and in which slots they, or what a feature is given, are on."""
    step = max(1, BLOCK // max(len(slots.rows), 1))
    before = None if given is None else given[slots.rows, slots.features]
    for first in range(0, concepts.shape[1], step):
        hits = np.ascontiguousarray(concepts.T[first : first + step])[:, slots.rows]
        yield first, min(first + step, concepts.shape[1]), hits if before is None else hits | before
