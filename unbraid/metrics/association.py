"""How well a feature says a concept: φ, the Matthews correlation of "it fires beyond θ" with "the concept is on".

φ        = (n·true - said·on) / √(said (n - said) on (n - on))      chance 0, perfect 1, of n rows; 0 where undefined
purity   = (precision - on/n) / (1 - on/n)                          precision, corrected for the base rate
recovery = mean over concepts of φ of the feature chosen for it

θ and the side (high: x ≥ θ, low: x ≤ θ) are those of the largest φ on the rows to fit on, of equal ones the cut that
says most; the feature of a concept is chosen there too. What is reported is measured on the other rows. A silent row
(x = 0) is never said: θ may pass 0 only in a feature that is silent nowhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.cuts import Slots, count, cut

FEWEST = 5
"""A concept on, or off, in fewer rows of either half is not judged."""

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
        return Counts(change(self.true), change(self.added), change(self.said), change(self.on), self.rows)

    def replaced(self, other: "Counts", where: Bool[np.ndarray, "f"]) -> "Counts":
        """With another's counts for some features."""
        pairs = ((other.true, self.true), (other.added, self.added), (other.said, self.said), (other.on, self.on))
        true, added, said, on = (np.where(where, new, old) for new, old in pairs)
        return Counts(true, added, said, on, self.rows)

    def phi(self) -> Float[np.ndarray, "c f"]:
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

    def recovery(self) -> float:
        """NaN where no concept is judged."""
        known = self.phi[~np.isnan(self.phi)]
        return float(known.mean()) if len(known) else float("nan")


def associate(
    codes: sparse.csr_array,
    concepts: Bool[np.ndarray, "n c"],
    fit: Bool[np.ndarray, "n"],
    given: Bool[np.ndarray, "n f"] | None = None,
) -> Association:
    """Cuts chosen on the rows `fit`; if rows are given to a feature, it is with the union of those and each concept."""
    rows, features, values = sparse.find(codes)
    silent = np.asarray(codes.astype(bool).sum(0)) < len(concepts)
    on_fit, values = fit[rows], values.astype(np.float64)
    half = Slots.of(rows[on_fit], values[on_fit], features[on_fit])
    other = Slots.of(rows[~on_fit], values[~on_fit], features[~on_fit])
    on, on_held = _on(concepts, fit, given, len(silent)), _on(concepts, ~fit, given, len(silent))
    amount, rest = int(fit.sum()), int((~fit).sum())
    thresholds, sides = cut(half, concepts, given, on, amount, silent)
    judged = [np.minimum(concepts[part].sum(0), (~concepts[part]).sum(0)) >= FEWEST for part in (fit, ~fit)]
    return Association(
        thresholds,
        sides,
        Counts(*count(half, concepts, given, thresholds, sides), on, amount),
        Counts(*count(other, concepts, given, thresholds, sides), on_held, rest),
        judged[0] & judged[1],
    )


def best(found: Association) -> Best:
    """For each concept the feature of the largest φ on the rows fitted, of equal ones the first."""
    chosen = found.fit.phi().argmax(1)
    measured = np.take_along_axis(found.held.phi(), chosen[:, None], 1)[:, 0]
    return Best(chosen, np.where(found.judged, measured, np.nan))


def says(codes: sparse.csr_array, thresholds: Float[np.ndarray, "f"], sides: Int[np.ndarray, "f"]) -> sparse.csr_array:
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
