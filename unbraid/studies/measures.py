"""The measures that claims name: each a pure function of a study's results, whose arguments are its record.

level        v                                   against chance, or 0 where there is none
difference   v(of) - v(minus)                    paired by replicate
relative     v(of) / v(minus) - 1                paired by replicate
contrast     (v(of) - v(minus)) - (v(than) - v(than_minus))   paired by replicate: the interaction of two changes
matched      v(of) - v(minus) where both have the same `by`, interpolated between their settings
equal_l0     v(of) - v(minus) over all L0 that both families pass through, as unbraid.metrics.intervals compares
nearer       |v(of) - target| - |v(minus) - target|, mean over their settings
panels       mean over cells of (v - same label)² - (v - other label)², in logarithms where `ratio`

In the first, second and fourth v may be a metric less another of the same members (`over`): sharpness over that before
training is what training gave, of ℓ0 heads over that of ℓ2 heads it is their gap.

With a cell for each of two labels, a and b under their own, and our values u and v, the last is (v - u)·(a - b): an
error that both our values share, as that of a shorter training, drops out.
"""

import math
from abc import abstractmethod
from itertools import pairwise
from typing import Literal

from pydantic import Field

from unbraid.config import Config
from unbraid.errors import UserError
from unbraid.metrics.catalog import get
from unbraid.metrics.intervals import Difference as PairedDifference
from unbraid.metrics.intervals import Estimate, Path, Paths, compare, estimate, paired_difference
from unbraid.studies.results import ByReplicate, Results, Where, means
from unbraid.studies.verdicts import Measurement

SMALLEST_RATIO = 0.05
"""The smallest effect of interest of a ratio: five in a hundred more or less."""


class Measure(Config):
    """A named statistic of one metric; its fields are its arguments."""

    metric: str
    """The metric that is read, by its name in the catalog."""

    @abstractmethod
    def measure(self, results: Results) -> Measurement: ...

    @abstractmethod
    def selections(self) -> list[Where]:
        """Every selection of settings it reads: a study is narrowed to these."""

    def smallest(self) -> float | None:
        """The smallest effect of interest in the measure's unit, unless a part states its own: that of the metric."""
        return get(self.metric).least_difference


class LessOver(Measure):
    """A measure of one metric, or of that metric less another of the same members."""

    over: str | None = None
    """A metric that is subtracted, replicate by replicate, as `untrained_sharpness`; None: none is."""

    def values(self, results: Results, where: Where) -> ByReplicate:
        """The metric by replicate, less `over` where that is named."""
        values = results.values(self.metric, where)
        if self.over is None:
            return values
        over = results.values(self.over, where)
        return {key: values[key] - over[key] for key in values if key in over}

    def chance(self, results: Results, where: Where) -> float | None:
        """None where a metric is subtracted: chance is of the metric itself."""
        return None if self.over else results.chance(self.metric, where)


class Level(LessOver):
    """The value itself, held against chance; less another metric, held against 0."""

    kind: Literal["level"] = "level"
    """The measure's name in a claim."""
    of: Where
    """Settings that are measured, as {setting = value}."""

    def measure(self, results: Results) -> Measurement:
        chance = self.chance(results, self.of)
        return _measurement(self.values(results, self.of), chance, zero=chance or 0.0)

    def selections(self) -> list[Where]:
        return [self.of]


class Difference(LessOver):
    """One selection of settings minus another; its chance is the difference of their chances."""

    kind: Literal["difference"] = "difference"
    """The measure's name in a claim."""
    of: Where
    """Settings that are compared, as {setting = value}."""
    minus: Where
    """Settings that they are compared with."""

    def measure(self, results: Results) -> Measurement:
        ours, theirs = (self.values(results, where) for where in (self.of, self.minus))
        chances = [self.chance(results, where) for where in (self.of, self.minus)]
        return _paired(ours, theirs, _minus(*chances))

    def selections(self) -> list[Where]:
        return [self.of, self.minus]


class Relative(Measure):
    """By what share one selection of settings is above another."""

    kind: Literal["relative"] = "relative"
    """The measure's name in a claim."""
    of: Where
    """Settings that are compared, as {setting = value}."""
    minus: Where
    """Settings that they are divided by."""

    def measure(self, results: Results) -> Measurement:
        ours, theirs = (results.values(self.metric, where) for where in (self.of, self.minus))
        return _measurement({key: ours[key] / theirs[key] - 1 for key in sorted(ours.keys() & theirs.keys())}, None)

    def selections(self) -> list[Where]:
        return [self.of, self.minus]

    def smallest(self) -> float:
        return SMALLEST_RATIO


class Contrast(LessOver):
    """How far one difference is above another: what a change does here, less what it does there (their interaction)."""

    kind: Literal["contrast"] = "contrast"
    """The measure's name in a claim."""
    of: Where
    """Settings with the change, here."""
    minus: Where
    """Settings without the change, here."""
    than: Where
    """Settings with the change, there."""
    than_minus: Where
    """Settings without the change, there."""

    def measure(self, results: Results) -> Measurement:
        here, without, there, there_without = (self.values(results, where) for where in self.selections())
        shared = here.keys() & without.keys() & there.keys() & there_without.keys()
        contrasts = {key: here[key] - without[key] - (there[key] - there_without[key]) for key in sorted(shared)}
        return _measurement(contrasts, None)

    def selections(self) -> list[Where]:
        return [self.of, self.minus, self.than, self.than_minus]


class Matched(Measure):
    """Two families of settings where their `by` is `times` its ceiling; a replicate counts where both reach that."""

    kind: Literal["matched"] = "matched"
    """The measure's name in a claim."""
    of: Where
    """Settings that are compared, as {setting = value}."""
    minus: Where
    """Settings that they are compared with."""
    by: str = "l0"
    """The metric that both must agree in."""
    times: float = Field(default=1.0, gt=0)
    """The level at which they are compared, as a multiple of the ceiling of `by`; for L0, higher is denser."""

    def measure(self, results: Results) -> Measurement:
        ceiling = results.ceiling(self.by, self.of)
        if ceiling is None:
            raise UserError(f"the study has no ceiling of '{self.by}' to match at")
        level = self.times * ceiling
        ours, theirs = (self._interpolated(results, where, level) for where in (self.of, self.minus))
        return _paired(ours, theirs)

    def selections(self) -> list[Where]:
        return [self.of, self.minus]

    def _interpolated(self, results: Results, where: Where, level: float) -> ByReplicate:
        lines = _points(results, where, self.by, self.metric)
        values = {replicate: _between(sorted(line), level) for replicate, line in lines.items()}
        return {replicate: value for replicate, value in values.items() if value is not None}


class EqualL0(Measure):
    """Two families of settings at equal L0, each a path by replicate over the sparsity that was swept.

    The mean over log L0 between the largest first L0 of any path and the smallest last; or `at` one L0.
    """

    kind: Literal["equal_l0"] = "equal_l0"
    """The measure's name in a claim."""
    of: Where
    """Settings that are compared, as {setting = value}."""
    minus: Where
    """Settings that they are compared with."""
    at: float | None = Field(default=None, gt=0)
    """The L0 at which they are compared, in features a sample; None: the mean over all L0 that both reach."""

    def measure(self, results: Results) -> Measurement:
        ours, theirs = (_paths(results, where, self.metric) for where in (self.of, self.minus))
        compared = compare(ours, theirs, at=self.at)
        if compared.difference is None:
            return Measurement(Estimate(math.nan, None), 0, None, note=compared.reason)
        low, high = f"{compared.low:.4g}", f"{compared.high:.4g}"
        span = low if compared.low == compared.high else f"{low} to {high}"
        return _of_difference(compared.difference, None, note=f"at L0 {span}")

    def selections(self) -> list[Where]:
        return [self.of, self.minus]


class Nearer(Measure):
    """How much farther from a target one selection is than another, setting by setting: below 0 is nearer."""

    kind: Literal["nearer"] = "nearer"
    """The measure's name in a claim."""
    of: Where
    """Settings that are compared, as {setting = value}."""
    minus: Where
    """Settings that they are compared with."""
    target: float
    """The value that is aimed at, in the metric's unit."""

    def measure(self, results: Results) -> Measurement:
        ours, theirs = (self._distances(results, where) for where in (self.of, self.minus))
        return _paired(ours, theirs)

    def selections(self) -> list[Where]:
        return [self.of, self.minus]

    def _distances(self, results: Results, where: Where) -> ByReplicate:
        """The mean over the settings of each replicate's distance."""
        settings = [Results([summary], results.config).values(self.metric, {}) for summary in results.select(where)]
        return means([{key: abs(value - self.target) for key, value in values.items()} for values in settings])


class Cell(Config):
    """One cell of a published picture under its own label and under the other, and the settings it is about."""

    of: Where
    """Settings that the cell is about, as {setting = value}."""
    same: float = Field(gt=0)
    """The published value under the cell's own label, in the metric's unit."""
    other: float = Field(gt=0)
    """The published value under the other label, in the metric's unit."""


class Panels(Measure):
    """How much nearer our cells are to the other label than to their own: above 0 speaks for swapped labels."""

    kind: Literal["panels"] = "panels"
    """The measure's name in a claim."""
    cells: tuple[Cell, ...] = Field(min_length=1, strict=False)
    """The cells, each with its settings and its two published values."""
    ratio: bool = False
    """Whether distances are ratios (differences of logarithms); false: differences."""

    def measure(self, results: Results) -> Measurement:
        columns = [
            {replicate: self._nearer(value, cell) for replicate, value in results.values(self.metric, cell.of).items()}
            for cell in self.cells
        ]
        return _measurement(means(columns), None)

    def selections(self) -> list[Where]:
        return [cell.of for cell in self.cells]

    def smallest(self) -> None:
        """Its unit is a square, in which no metric has a smallest effect: a part states its own."""

    def _nearer(self, ours: float, cell: Cell) -> float:
        if self.ratio:
            return math.log(ours / cell.same) ** 2 - math.log(ours / cell.other) ** 2
        return (ours - cell.same) ** 2 - (ours - cell.other) ** 2


MEASURES: dict[str, type[Measure]] = {
    "level": Level,
    "difference": Difference,
    "relative": Relative,
    "contrast": Contrast,
    "matched": Matched,
    "equal_l0": EqualL0,
    "nearer": Nearer,
    "panels": Panels,
}


def _measurement(values: ByReplicate, chance: float | None, zero: float = 0.0) -> Measurement:
    return Measurement(estimate(list(values.values())), len(values), chance, zero, values=tuple(values.values()))


def _paired(ours: ByReplicate, theirs: ByReplicate, chance: float | None = None) -> Measurement:
    return _of_difference(paired_difference(ours, theirs), chance)


def _of_difference(difference: PairedDifference, chance: float | None, note: str = "") -> Measurement:
    return Measurement(difference.estimate, difference.pairs, chance, note=note, values=difference.values)


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _points(results: Results, where: Where, by: str, metric: str) -> dict[str, list[tuple[float, float]]]:
    """What each replicate has at every setting selected: (by, metric)."""
    points: dict[str, list[tuple[float, float]]] = {}
    for summary in results.select(where):
        setting = Results([summary], results.config)
        values = setting.values(metric, {})
        for replicate, x in setting.values(by, {}).items():
            if replicate in values:
                points.setdefault(replicate, []).append((x, values[replicate]))
    return points


def _paths(results: Results, where: Where, metric: str) -> Paths:
    """A replicate that fires nothing at any setting, or has no score, has no path."""
    points = _points(results, where, "l0", metric)
    known = {key: [point for point in line if point[0] > 0 and math.isfinite(point[1])] for key, line in points.items()}
    return {key: Path.through(line) for key, line in known.items() if line}


def _between(points: list[tuple[float, float]], x: float) -> float | None:
    """Linear interpolation between the two points around x; None outside them."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None
