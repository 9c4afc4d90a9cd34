"""How well a feature tells a concept: φ, the Matthews correlation of "it fires beyond θ" with "the concept is on".

φ       = (n·true - said·on) / √(said (n - said) on (n - on))      chance 0, perfect 1, of n rows; 0 where undefined
purity  = (precision - on/n) / (1 - on/n)                          precision, corrected for the base rate
φ of k  = φ of "at least one of a few features fires beyond its θ"

θ and the side (high: x ≥ θ, low: x ≤ θ) are those of the largest φ on the rows to fit on, of equal ones the cut that
says most; the feature of a concept is chosen there too. What is reported is measured on the other rows. A silent row
(x = 0) is never said: θ may pass 0 only in a feature that is silent nowhere.

Cuts are found at the cost of what fired: slots sorted by value, and sums along them,

φ · √(on (n - on)) = (n·true - said·on) / √(said (n - said)),   true = Σ of membership over the `said` highest slots

k-feature recovery: features are added one by one on the rows to fit on, each the one that raises φ most, at most
`most_parts` and while φ rises by `least_gain`; each is cut where it alone tells the concept best.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.matching.thresholds import DEFAULT, MatchingThresholds

SLOTS_AT_ONCE = 300_000
"""Slots times concepts looked at together: a table of them stays near the processor."""
Amount = np.ndarray | np.integer


@dataclass(frozen=True)
class Counts:
    """Of so many rows: in how many a feature says a concept, in how many truly, in how many of these beyond what it was
    given, and in how many the concept is on."""

    true: Int[np.ndarray, "c f"]
    added: Int[np.ndarray, "c f"]
    said: Int[np.ndarray, "c f"]
    on: Int[np.ndarray, "c f"]
    rows: int

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Counts":
        """With every table changed in the same way."""
        return Counts(change(self.true), change(self.added), change(self.said), change(self.on), self.rows)

    def replaced(self, other: "Counts", where: Bool[np.ndarray, "f"]) -> "Counts":
        """With another's counts for some features."""
        pairs = ((other.true, self.true), (other.added, self.added), (other.said, self.said), (other.on, self.on))
        true, added, said, on = (np.where(where, new, old) for new, old in pairs)
        return Counts(true, added, said, on, self.rows)

    def phi(self) -> Float[np.ndarray, "c f"]:
        """The Matthews correlation of each concept with each feature."""
        return phi(self.true, self.said, self.on, self.rows)

    def precision(self) -> Float[np.ndarray, "c f"]:
        """0 where nothing is said."""
        return self.true / np.maximum(self.said, 1)

    def recall(self) -> Float[np.ndarray, "c f"]:
        """0 where the concept is never on."""
        return self.true / np.maximum(self.on, 1)

    def purity(self) -> Float[np.ndarray, "c f"]:
        """Precision that is 0 at the base rate; 0 where the concept is always on."""
        base = self.on / max(self.rows, 1)
        return np.where(base < 1, (self.precision() - base) / np.where(base < 1, 1 - base, 1), 0)


@dataclass(frozen=True)
class Association:
    """Every concept with every feature: where the feature was cut, and what that counts on either half of the rows."""

    thresholds: Float[np.ndarray, "c f"]
    sides: Int[np.ndarray, "c f"]
    fit: Counts
    held: Counts
    judged: Bool[np.ndarray, "c"]


@dataclass(frozen=True)
class Best:
    """The feature of each concept, chosen on one half, and its φ on the other; NaN for a concept that is not judged."""

    features: Int[np.ndarray, "c"]
    phi: Float[np.ndarray, "c"]

    def mean_phi(self) -> float:
        """Over the concepts that are judged; NaN where none is."""
        known = self.phi[~np.isnan(self.phi)]
        return float(known.mean()) if len(known) else float("nan")


def associate(
    codes: sparse.csr_array,
    concepts: Bool[np.ndarray, "n c"],
    fit: Bool[np.ndarray, "n"],
    given: Bool[np.ndarray, "n f"] | None = None,
    thresholds: MatchingThresholds = DEFAULT,
) -> Association:
    """φ of every feature with every concept, the firing thresholds chosen on the rows `fit`.

    `codes` are n × f, `concepts` say which of c concepts are on in each row. If rows are given to a feature, it is
    associated with the union of those and each concept.
    """
    rows, features, values = sparse.find(codes)
    silent = np.asarray(codes.astype(bool).sum(0)) < len(concepts)
    on_fit, values = fit[rows], values.astype(np.float64)
    half = Slots.of(rows[on_fit], values[on_fit], features[on_fit])
    other = Slots.of(rows[~on_fit], values[~on_fit], features[~on_fit])
    on, on_held = _on(concepts, fit, given, len(silent)), _on(concepts, ~fit, given, len(silent))
    amount, rest = int(fit.sum()), int((~fit).sum())
    cuts, sides = best_thresholds(half, concepts, given, on, amount, silent)
    judged = [
        np.minimum(concepts[part].sum(0), (~concepts[part]).sum(0)) >= thresholds.fewest_rows for part in (fit, ~fit)
    ]
    return Association(
        cuts,
        sides,
        Counts(*count_rows(half, concepts, given, cuts, sides), on, amount),
        Counts(*count_rows(other, concepts, given, cuts, sides), on_held, rest),
        judged[0] & judged[1],
    )


def best(found: Association) -> Best:
    """For each concept the feature of the largest φ on the rows fitted, of equal ones the first."""
    chosen = found.fit.phi().argmax(1)
    measured = np.take_along_axis(found.held.phi(), chosen[:, None], 1)[:, 0]
    return Best(chosen, np.where(found.judged, measured, np.nan))


def fires_beyond(
    codes: sparse.csr_array, thresholds: Float[np.ndarray, "f"], sides: Int[np.ndarray, "f"]
) -> sparse.csr_array:
    """The rows in which each feature fires beyond its threshold, as ones."""
    rows, features, values = sparse.find(codes)
    side = sides[features].astype(np.float64)
    beyond = side * values >= side * thresholds[features]
    said = np.ones(int(beyond.sum()), np.float32)
    return sparse.csr_array((said, (rows[beyond], features[beyond])), shape=codes.shape)


def phi(true: Amount, said: Amount, on: Amount, rows: int) -> np.ndarray:
    """The Matthews correlation from counts; 0 where all or nothing is said or on."""
    room = np.sqrt(1.0 * said * (rows - said) * (1.0 * on * (rows - on)))
    return np.where(room > 0, (rows * 1.0 * true - 1.0 * said * on) / np.where(room > 0, room, 1), 0)


def _on(concepts: np.ndarray, part: np.ndarray, given: np.ndarray | None, features: int) -> np.ndarray:
    """In how many rows of a part each concept, or its union with what a feature is given, is on."""
    alone = concepts[part].sum(0)[:, None]
    if given is None:
        return np.broadcast_to(alone, (len(alone), features))
    before = given[part].astype(np.float32)  # counts below 2²⁴ are exact, and products in float are fast
    return alone + (before.sum(0) - concepts[part].T.astype(np.float32) @ before).astype(np.int64)


def k_feature_phi(
    codes: sparse.csr_array,
    concepts: Bool[np.ndarray, "n c"],
    fit: Bool[np.ndarray, "n"],
    found: Association,
    thresholds: MatchingThresholds = DEFAULT,
) -> Float[np.ndarray, "c"]:
    """φ of each concept by at most `most_parts` features together; NaN for a concept that is not judged."""
    columns, reached = sparse.csc_array(codes), np.full(concepts.shape[1], np.nan)
    ranked = np.argsort(-found.fit.phi(), axis=1, kind="stable")[:, : thresholds.candidates]
    for c in np.flatnonzero(found.judged):
        cut = found.thresholds[c, ranked[c]], found.sides[c, ranked[c]]
        said, on = sparse.csc_array(fires_beyond(sparse.csr_array(columns[:, ranked[c]]), *cut)), concepts[:, c]
        chosen = add_features(sparse.csr_array(said[fit].T), on[fit], np.zeros(int(fit.sum()), bool), thresholds)
        reached[c] = union_phi(np.asarray(said[:, chosen].sum(1) > 0)[~fit], on[~fit])
    return reached


def add_features(
    said: sparse.csr_array,
    on: Bool[np.ndarray, "b"],
    covered: Bool[np.ndarray, "b"],
    thresholds: MatchingThresholds = DEFAULT,
) -> list[int]:
    """Features, one a row of `said` (f × b), added one by one to the rows already covered, while φ of the OR rises."""
    chosen: list[int] = []
    now = union_phi(covered, on)
    while len(chosen) < min(thresholds.most_parts, len(said.indptr) - 1):
        free = ~covered
        true = (covered & on).sum() + said @ (free & on).astype(np.float32)
        heights = phi(true, covered.sum() + said @ free.astype(np.float32), on.sum(), len(on))
        if heights.max() < now + thresholds.least_gain:
            break
        chosen.append(int(heights.argmax()))
        now = float(heights.max())
        covered = covered | (said[[chosen[-1]]].toarray()[0] > 0)
    return chosen


def union_phi(covered: Bool[np.ndarray, "b"], on: Bool[np.ndarray, "b"]) -> float:
    """φ of the rows covered with those where the concept is on."""
    return float(phi((covered & on).sum(), covered.sum(), on.sum(), len(on)))


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
        """From row, value and feature of all that fired, in any order."""
        order = np.lexsort((-values, features))
        features = features[order]
        present, starts = np.unique(features, return_index=True)
        return cls(rows[order], values[order], features, present, starts)

    def spread(self, by_feature: np.ndarray) -> np.ndarray:
        """What is known of each feature that fired, for each of its slots."""
        return np.repeat(by_feature, np.diff(self.starts, append=len(self.rows)), axis=-1)


def best_thresholds(
    slots: Slots, concepts: np.ndarray, given: np.ndarray | None, on: np.ndarray, amount: int, silent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Threshold and side of the largest φ of each concept with each feature, cut from above or from below."""
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


def count_rows(
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
    step = max(1, SLOTS_AT_ONCE // max(len(slots.rows), 1))
    before = None if given is None else given[slots.rows, slots.features]
    for first in range(0, concepts.shape[1], step):
        hits = np.ascontiguousarray(concepts.T[first : first + step])[:, slots.rows]
        yield first, min(first + step, concepts.shape[1]), hits if before is None else hits | before
