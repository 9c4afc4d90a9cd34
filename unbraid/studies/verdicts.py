"""When a measurement decides: rules that read a 95 % interval as holds, fails or undecided.

Every rule reads the interval of the measurement minus its zero (0 for a difference, chance for a level), and calls
nothing from fewer than five pairs.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from unbraid.config import Config
from unbraid.metrics.intervals import FEWEST_PAIRS, Estimate

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"


@dataclass(frozen=True)
class Measurement:
    """A number with its interval, over how many pairs or replicates; `zero` is what a rule measures from.

    `note` says where it was measured, or why it could not be.
    """

    estimate: Estimate
    pairs: int
    chance: float | None
    zero: float = 0.0
    note: str = ""


class Rule(Config):
    """Reads the interval of a measurement; `margin` is where it draws the line."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The rule as a sentence, made from its own numbers so that it cannot say otherwise than it does."""

    @abstractmethod
    def read(self, low: float, high: float) -> str:
        """The verdict on an interval from low to high."""

    def verdict(self, measurement: Measurement) -> str:
        interval = measurement.estimate.interval
        if interval is None or measurement.pairs < FEWEST_PAIRS:
            return UNDECIDED
        return self.read(interval[0] - measurement.zero, interval[1] - measurement.zero)


class Above(Rule):
    """The interval lies above the margin."""

    kind: Literal["above"] = "above"
    """The rule's name in a claim."""
    margin: float = 0.0
    """The interval must lie above this, in the measure's unit; a higher margin is harder to meet."""

    @property
    def words(self) -> str:
        return f"holds if the 95 % interval lies above {self.margin:g}, fails if no part of it does, else undecided"

    def read(self, low: float, high: float) -> str:
        return HOLDS if low > self.margin else FAILS if high <= self.margin else UNDECIDED


class Below(Rule):
    """The interval lies below the margin."""

    kind: Literal["below"] = "below"
    """The rule's name in a claim."""
    margin: float = 0.0
    """The interval must lie below this, in the measure's unit; a lower margin is harder to meet."""

    @property
    def words(self) -> str:
        return f"holds if the 95 % interval lies below {self.margin:g}, fails if no part of it does, else undecided"

    def read(self, low: float, high: float) -> str:
        return HOLDS if high < self.margin else FAILS if low >= self.margin else UNDECIDED


class Within(Rule):
    """The interval lies within ± margin of zero."""

    kind: Literal["within"] = "within"
    """The rule's name in a claim."""
    margin: float = Field(gt=0)
    """Half the width of the band around 0 that must hold the interval, in the measure's unit; wider is easier."""

    @property
    def words(self) -> str:
        inside = f"−{self.margin:g} to {self.margin:g}"
        return f"holds if the 95 % interval lies within {inside}, fails if it lies wholly outside, else undecided"

    def read(self, low: float, high: float) -> str:
        if -self.margin <= low and high <= self.margin:
            return HOLDS
        return FAILS if low > self.margin or high < -self.margin else UNDECIDED


RULES: dict[str, type[Rule]] = {"above": Above, "below": Below, "within": Within}


def combine_verdicts(verdicts: list[str]) -> str:
    """A claim of several parts holds if all hold and fails if one fails."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if all(verdict == HOLDS for verdict in verdicts) else UNDECIDED
