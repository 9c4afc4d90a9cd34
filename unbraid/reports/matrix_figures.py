"""Figures of a grid: a matrix for each score, sizes down, the swept number across, the source's values beside ours."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize

from unbraid.reports.canvas import INK, Figure, Section, blank, name_axes, png
from unbraid.reports.grids import TITLE, Grid, grids, last_name, ratio
from unbraid.reports.published_grid import CLIPPED, Published, published
from unbraid.reports.run_results import RunResults
from unbraid.reports.words import MISSING

CELL, BESIDE, TICK = 7.6, 6.4, 8.0
"""Sizes of letters: our value, the source's value, a tick."""
FLOOR = 1e-7


@dataclass(frozen=True)
class _Matrix:
    """How a score is drawn: its title, the unit its numbers are written in, and the colours of its values."""

    metric: str
    title: str
    unit: float = 1.0
    digits: str = ".3f"

    def text(self, value: float | None) -> str:
        if value is None or not np.isfinite(value):
            return MISSING
        scaled = value / self.unit
        if self.digits != "few":
            return format(scaled, self.digits).replace("0.", ".", 1) if abs(scaled) < 1 else format(scaled, self.digits)
        return "0" if scaled < 0.0005 else f"{scaled:.2f}" if scaled < 10 else f"{scaled:.1f}"

    def norm(self, values: np.ndarray) -> Normalize:
        if self.metric == "dead":
            return Normalize(0, CLIPPED, clip=True)
        if self.metric != "reconstruction_error":
            return Normalize(0, 1)
        kept = values[np.isfinite(values) & (values > 0)]
        low, high = (max(FLOOR, float(kept.min())), float(kept.max())) if kept.size else (FLOOR, 1.0)
        return LogNorm(low, max(high, 1.01 * low))


MATRICES = (
    _Matrix("reconstruction_error", "Reconstruction error (× 10⁻⁴)", 1e-4, "few"),
    _Matrix("mmcs", "MMCS"),
    _Matrix("mmcs_larger", "MMCS with the next larger"),
    _Matrix("dead", "Dead entries", digits=",.0f"),
)


def matrices(results: RunResults) -> Section:
    """Four matrices for each grid of the run."""
    figures: list[Figure] = []
    sources: list[str] = []
    for place, grid in enumerate(grids(results), 1):
        source = published(results, grid.first(), grid.across)
        sources += [f"{grid.name} is the panel it labels “{source.label}”"] if source else []
        for matrix in MATRICES:
            if any(matrix.metric in setting.scores for setting in grid.cells.values()):
                figures.append(_figure(results, grid, place, matrix, source))
    beside = (
        " In brackets: the value read off the source's figure, where legible, matched to the generator and not to "
        f"the label, which the source has swapped ({'; '.join(sources)})."
        if sources
        else ""
    )
    caption = (
        "Each cell is a dictionary: its number of entries (rows; in brackets as a multiple of the true features) and "
        "what was swept (columns). To the right of each row: chance, a random dictionary of the same size (for "
        "reconstruction: answering the mean), and the ceiling, an oracle of the same size. Means over replicates. Dead "
        f"is coloured up to {CLIPPED}, as in the source, its numbers are not cut.{beside}"
    )
    return Section("The grid", caption, figures)


def _figure(results: RunResults, grid: Grid, place: int, matrix: _Matrix, source: Published | None) -> Figure:
    values = np.array([[_value(grid, row, column, matrix.metric) for column in grid.columns] for row in grid.rows])
    figure, axes = blank(results.source, height=1.35 + 0.36 * len(grid.rows))
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    colours = ScalarMappable(matrix.norm(values), "cividis").to_rgba(np.ma.masked_invalid(values))
    colours[~np.isfinite(values)] = (0.93, 0.93, 0.93, 1)
    axes.imshow(colours, aspect="auto", interpolation="nearest")
    for i, row in enumerate(grid.rows):
        for j, column in enumerate(grid.columns):
            theirs = source.value(matrix.metric, row, column) if source else None
            _write_cell(axes, (j, i), matrix, values[i, j], theirs, colours[i, j])
    _write_bounds(axes, grid, matrix)
    axes.set_xticks(range(len(grid.columns)), [f"{column:.2g}" for column in grid.columns], fontsize=TICK)
    names = [ratio(row, grid.planted) for row in grid.rows]
    axes.set_yticks(range(len(grid.rows)), names, fontsize=TICK)
    axes.tick_params(length=0)
    title = f"{matrix.title}\n{grid.name}" if grid.name else matrix.title
    name_axes(axes, title, last_name(grid.across), "", TITLE)
    alt = f"{matrix.title}, {grid.name}: {_described(grid, matrix, values)}"
    return Figure(f"matrix-{matrix.metric.replace('_', '-')}-{place}", png(figure), alt)


def _value(grid: Grid, row: int, column: float, metric: str) -> float:
    setting = grid.cells.get((row, column))
    value = setting.value(metric) if setting else None
    return np.nan if value is None else value


def _write_cell(
    axes: Axes, at: tuple[int, int], matrix: _Matrix, value: float, theirs: float | None, colour: np.ndarray
) -> None:
    """Our value, and under it in brackets the source's."""
    light = float(colour[:3] @ [0.299, 0.587, 0.114]) > 0.5
    ink = INK if light else "white"
    text = matrix.text(value)
    up = 0.0 if theirs is None else -0.17
    axes.text(at[0], at[1] + up, text, fontsize=CELL, color=ink, ha="center", va="center")
    if theirs is not None:
        more = "+" if matrix.metric == "dead" and theirs >= CLIPPED else ""
        beside = f"({matrix.text(theirs)}{more})"
        axes.text(at[0], at[1] + 0.24, beside, fontsize=BESIDE, color=ink, ha="center", va="center")


def _write_bounds(axes: Axes, grid: Grid, matrix: _Matrix) -> None:
    """Chance and ceiling of every row, where the score has them."""
    at = len(grid.columns) - 0.5
    for which in ("chance", "ceiling"):
        found = {row: _bound(grid, row, matrix.metric, which) for row in grid.rows}
        if all(value is None for value in found.values()):
            continue
        axes.text(at + 0.5, -0.62, which, fontsize=TICK, color=INK, ha="center", va="bottom")
        for i, value in enumerate(found.values()):
            axes.text(at + 0.5, i, matrix.text(value), fontsize=CELL, color=INK, ha="center", va="center")
        at += 1
    axes.set_xlim(-0.5, at)


def _bound(grid: Grid, row: int, metric: str, which: str) -> float | None:
    scores = [
        setting.scores[metric] for (own, _), setting in grid.cells.items() if own == row and metric in setting.scores
    ]
    found = [value for score in scores if (value := score.chance if which == "chance" else score.ceiling) is not None]
    return sum(found) / len(found) if found else None


def _described(grid: Grid, matrix: _Matrix, values: np.ndarray) -> str:
    rows = [
        f"{row} entries {', '.join(matrix.text(value) for value in line)}"
        for row, line in zip(grid.rows, values, strict=True)
    ]
    return f"for {last_name(grid.across)} {', '.join(f'{column:.3g}' for column in grid.columns)}: {'; '.join(rows)}."
