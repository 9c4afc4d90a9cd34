"""See the settings of a run as grids: rows are sizes of the dictionary, columns another number that was swept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.config import REPLICATES
from unbraid.reports.configurations import flat_sweep
from unbraid.reports.run_results import RunResults, Setting

ROWS = "dictionary.d_sae"
TITLE = 10.0
"""The size of letters of a title with two lines, of which the second is a grid's name."""


@dataclass(frozen=True)
class Grid:
    """One grid; what else was swept is the same in all of it, and is its name."""

    name: str
    rows: list[int]
    columns: list[float]
    across: str
    """The dotted path of what the columns are."""
    cells: dict[tuple[int, float], Setting]
    planted: int

    def column(self, value: float) -> list[tuple[int, Setting]]:
        """The settings of one column, smallest dictionary first."""
        return [(row, self.cells[row, value]) for row in self.rows if (row, value) in self.cells]

    def name_of(self, column: float) -> str:
        """The grid's name and the column's, in few words: a mechanism's weight goes by the mechanism's name."""
        words = f"{last_name(self.across).removesuffix(' weight')} {column:.3g}"
        return f"{self.name}, {words}" if self.name else words

    def first(self) -> Setting:
        return next(iter(self.cells.values()))


@dataclass(frozen=True)
class Family:
    """Settings to draw together, each with a short name."""

    name: str
    settings: list[tuple[str, Setting]]


def grids(results: RunResults) -> list[Grid]:
    """The run's settings as grids; none where not both a size and another number were swept."""
    sweep = {path: values for path, values in flat_sweep(results.config).items() if path not in REPLICATES}
    numbers = [path for path, values in sweep.items() if path != ROWS and len(values) > 1 and _are_numbers(values)]
    if len(sweep.get(ROWS, [])) < 2 or not numbers:
        return []
    across, found = numbers[0], {}
    for setting in results.settings:
        rest = {path: value for path, value in setting.swept.items() if path not in (ROWS, across)}
        found.setdefault(_name(rest), {})[setting.swept[ROWS], setting.swept[across]] = setting
    rows, columns = sorted(sweep[ROWS]), sorted(sweep[across])
    return [
        Grid(name, rows, columns, across, cells, len(results.probabilities(next(iter(cells.values())))))
        for name, cells in found.items()
    ]


def families(results: RunResults) -> list[Family]:
    """The last column of every grid, a line a size; where there is no grid, the settings that have lines."""
    found = grids(results)
    if not found:
        return [Family("", [(setting.label, setting) for setting in results.drawn])]
    return [
        Family(
            grid.name_of(grid.columns[-1]),
            [(ratio(row, grid.planted), setting) for row, setting in grid.column(grid.columns[-1])],
        )
        for grid in found
    ]


def ratio(features: int, planted: int) -> str:
    return f"{features:,} (× {features / planted:g})" if planted else f"{features:,}"


def last_name(path: str) -> str:
    """The name a reader knows: that of the mechanism, for its weight."""
    *_, before, last = ["", *path.split(".")]
    return f"{before} {last}" if last == "weight" else last


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _name(rest: dict[str, Any]) -> str:
    return ", ".join(f"{path.split('.')[-1]} {_words(value)}" for path, value in rest.items())


def _words(value: Any) -> str:
    return " ".join(str(part) for part in value.values()) if isinstance(value, dict) else str(value)
