"""What a verdict means: rules that read a part's replicates, and how the parts of a claim combine.

A part has four outcomes. d is what was measured, minus its zero (0 for a difference, chance for a level):

holds       d is on the claimed side of the margin, by a two-sided sign-flip test over replicates at 5 %
opposite    d is on the other side, by the same test
no effect   the 95 % interval of d lies within ± the smallest effect of interest, and the claim says that there is one
undecided   none of these, or too few replicates

*No effect* comes before the others: a difference too small to matter supports nobody, however sure it is. A claim that
something does *not* change (`within`) holds where d is inside the band by the test against both its edges.

A claim needs all of its parts, or any of them:

all   holds if all parts hold, each at 5 % (an intersection-union test); opposite if any part is, by Holm's rule;
      else no effect if any part has none
any   the mirror image: holds if any part does, by Holm's rule; opposite if all parts are, each at 5 %;
      else no effect if no part is left undecided

A *control* is a part that shows only that the study could have shown the claim: that a penalty moved what it names,
that something was lost before it was won back, that an unstable training is seen as unstable. Unless all controls hold,
the claim is undecided. Where they do, *no effect* means that the claim was looked for and not reproduced.

Either way, where there is nothing at most 2.5 % of claims end *holds* and at most 2.5 % *opposite*.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from unbraid.config import Config
from unbraid.metrics.intervals import Estimate
from unbraid.metrics.sign_flips import LEVEL, Combine, holm, least_replicates, sign_flip_p

HOLDS, NO_EFFECT, OPPOSITE, UNDECIDED = "holds", "no effect", "opposite", "undecided"


@dataclass(frozen=True)
class Measurement:
    """A number with its interval, over how many pairs or replicates; `zero` is what a rule measures from.

    `note` says where it was measured, or why it could not be. `values` are those of the replicates.
    """

    estimate: Estimate
    pairs: int
    chance: float | None
    zero: float = 0.0
    note: str = ""
    values: tuple[float, ...] = ()

    def distances(self, line: float) -> list[float]:
        """How far each replicate lies above `zero` plus this."""
        return [value - self.zero - line for value in self.values]

    def is_inside(self, band: float) -> bool:
        """Whether the 95 % interval lies within ± band of `zero`."""
        interval = self.estimate.interval
        return interval is not None and -band <= interval[0] - self.zero and interval[1] - self.zero <= band


@dataclass(frozen=True)
class Evidence:
    """What the replicates of a part say: p-values for its claim and for the opposite, and whether there is no effect.

    Each p is of a two-sided test, and 1 where the mean lies on the other side.
    """

    p_for: float
    p_against: float
    no_effect: bool = False

    @property
    def p(self) -> float:
        """That of the side on which the mean lies."""
        return min(self.p_for, self.p_against)


NOTHING = Evidence(1.0, 1.0)


class Rule(Config):
    """Reads the replicates of a measurement; `margin` is where it draws the line, if a claim's words name a figure."""

    @abstractmethod
    def words(self, smallest: float) -> str:
        """The rule as a sentence, made from its own numbers so that it cannot say otherwise than it does."""

    @abstractmethod
    def read(self, measurement: Measurement, smallest: float) -> Evidence:
        """What a measurement says, where effects within ± smallest are of no interest."""

    def evidence(self, measurement: Measurement, smallest: float, parts: int = 1) -> Evidence:
        """The same; nothing where there are fewer replicates than a claim of so many parts needs, or no value."""
        enough = measurement.pairs >= least_replicates(parts) and all(map(math.isfinite, measurement.values))
        return self.read(measurement, smallest) if enough else NOTHING


def _sides(distances: Sequence[float]) -> tuple[float, float]:
    """The p-values of lying above 0 and of lying below: of a two-sided test, and 1 for the side where it does not."""
    p, total = sign_flip_p(distances), math.fsum(distances)
    return (p if total > 0 else 1.0), (p if total < 0 else 1.0)


def _sided_words(side: str, other: str, margin: float, smallest: float, *, claims_an_effect: bool) -> str:
    decided = f"holds if {side} {margin:g} and opposite if {other}, by a sign-flip test at 5 %"
    nothing = f"; no effect if the 95 % interval lies within ±{smallest:g}" if claims_an_effect else ""
    return f"{decided}{nothing}; else undecided"


class Above(Rule):
    """It lies above the margin."""

    kind: Literal["above"] = "above"
    """The rule's name in a claim."""
    margin: float = 0.0
    """What must be exceeded, in the measure's unit, where the claim names a figure; a higher margin is harder to
    meet."""

    def words(self, smallest: float) -> str:
        return _sided_words("above", "below", self.margin, smallest, claims_an_effect=self.margin >= 0)

    def read(self, measurement: Measurement, smallest: float) -> Evidence:
        above, below = _sides(measurement.distances(self.margin))
        return Evidence(above, below, self.margin >= 0 and measurement.is_inside(smallest))


class Below(Rule):
    """It lies below the margin."""

    kind: Literal["below"] = "below"
    """The rule's name in a claim."""
    margin: float = 0.0
    """What it must stay under, in the measure's unit, where the claim names a figure; a lower margin is harder to
    meet."""

    def words(self, smallest: float) -> str:
        return _sided_words("below", "above", self.margin, smallest, claims_an_effect=self.margin <= 0)

    def read(self, measurement: Measurement, smallest: float) -> Evidence:
        above, below = _sides(measurement.distances(self.margin))
        return Evidence(below, above, self.margin <= 0 and measurement.is_inside(smallest))


class Within(Rule):
    """It lies within ± margin of zero: the claim is that there is no effect, so that is what holds."""

    kind: Literal["within"] = "within"
    """The rule's name in a claim."""
    margin: float | None = Field(default=None, gt=0)
    """Half the width of the band around 0, in the measure's unit, where the claim names a figure; wider is easier.
    None: the smallest effect of interest."""

    def words(self, smallest: float) -> str:
        band = self.margin or smallest
        tested = "by sign-flip tests against both edges at 5 %"
        return f"holds if within ±{band:g} and opposite if beyond, {tested}; else undecided"

    def read(self, measurement: Measurement, smallest: float) -> Evidence:
        band = self.margin or smallest
        beyond_high, below_high = _sides(measurement.distances(band))
        above_low, beyond_low = _sides(measurement.distances(-band))
        return Evidence(max(below_high, above_low), min(beyond_high, beyond_low))


RULES: dict[str, type[Rule]] = {"above": Above, "below": Below, "within": Within}


@dataclass(frozen=True)
class Verdict:
    """On a claim: the word, its p-value, and the words on its parts and on its controls."""

    verdict: str
    p: float
    parts: tuple[str, ...]
    controls: tuple[str, ...] = ()


def judge(evidence: Sequence[Evidence], combine: Combine = "all", controls: Sequence[Evidence] = ()) -> Verdict:
    """The verdict on a claim from what its parts say.

    A part without an effect of interest speaks for neither side, so its p-values count as 1. Under the null either
    side has a p-value at or below t with a probability of at most t / 2, so the smaller of the two is one too.

    Parameters
    ----------
    evidence : sequence of Evidence
        One a part.
    combine : "all" or "any"
        Whether the claim needs all parts, or any of them.
    controls : sequence of Evidence
        One a control; unless all hold, the claim is undecided.

    Returns
    -------
    Verdict
        With the claim's p-value, that of the nearer of *holds* and *opposite*; not below that of any control.

    Examples
    --------
    >>> parts = [Evidence(p_for=0.008, p_against=1.0), Evidence(p_for=0.04, p_against=1.0)]
    >>> judge(parts, "all")
    Verdict(verdict='holds', p=0.04, parts=('holds', 'holds'), controls=())
    >>> judge(parts, "any")
    Verdict(verdict='holds', p=0.016, parts=('holds', 'holds'), controls=())
    >>> judge(parts, "all", controls=[Evidence(p_for=0.3, p_against=1.0)])
    Verdict(verdict='undecided', p=0.3, parts=('holds', 'holds'), controls=('undecided',))
    """
    p_for = [1.0 if part.no_effect else part.p_for for part in evidence]
    p_against = [1.0 if part.no_effect else part.p_against for part in evidence]
    if combine == "all":
        p_against = holm(p_against)
        p = min(max(p_for), min(p_against))
    else:
        p_for = holm(p_for)
        p = min(min(p_for), max(p_against))
    words = tuple(map(_word, evidence, p_for, p_against))
    checked = tuple(_word(control, control.p_for, control.p_against) for control in controls)
    verdict = _combined(words, combine) if all(word == HOLDS for word in checked) else UNDECIDED
    return Verdict(verdict, max([p, *(1.0 if each.no_effect else each.p_for for each in controls)]), words, checked)


def _word(part: Evidence, p_for: float, p_against: float) -> str:
    """The outcome of one part, from its p-values as they count among the others."""
    if part.no_effect:
        return NO_EFFECT
    return HOLDS if p_for <= LEVEL else OPPOSITE if p_against <= LEVEL else UNDECIDED


def _combined(words: tuple[str, ...], combine: Combine) -> str:
    """The first of these words that any part has."""
    order = (OPPOSITE, NO_EFFECT, UNDECIDED, HOLDS) if combine == "all" else (HOLDS, UNDECIDED, NO_EFFECT, OPPOSITE)
    return next(word for word in order if word in words)
