"""Figures of single true features through training: when each was learned, moved to another entry, and lost."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.metrics.catalog import FOUND
from unbraid.reports.canvas import COLOURS, GREY, Figure, Section, blank, key, name_axes, png, short
from unbraid.reports.grids import TITLE, grids, ratio
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.step_axis import log_steps

SHOWN = 14


@dataclass(frozen=True)
class Life:
    """A true feature at every check: whether it is found, and by which entry."""

    found: np.ndarray
    entry: np.ndarray

    def born(self) -> np.ndarray:
        return self.found & ~self._before()

    def lost(self) -> np.ndarray:
        return ~self.found & self._before()

    def moved(self) -> np.ndarray:
        return self.found & self._before() & (self.entry != np.roll(self.entry, 1))

    def _before(self) -> np.ndarray:
        return np.concatenate([[False], self.found[:-1]])


def timelines(results: RunResults) -> Section:
    """A figure a setting: the first, the nearest to the right size, and the last of each grid; or those drawn."""
    figures = [_figure(results, place, *chosen) for place, chosen in enumerate(_chosen(results), 1)]
    caption = (
        "Each row is a true feature with its probability to fire, the most frequent first; of the first replicate. "
        f"The line is drawn while some entry has a cosine of at least {FOUND} with it. Circle: learned. Diamond: "
        "moved to another entry. Cross: lost. Seen at the checks only (small ticks above the axis)."
    )
    return Section("Timelines of single features", caption, [figure for figure in figures if figure])


def _chosen(results: RunResults) -> list[tuple[str, Setting]]:
    chosen: list[tuple[str, Setting]] = []
    for grid in grids(results):
        nearest = min(grid.rows, key=lambda row: abs(np.log(row / max(1, grid.planted))))
        for row in dict.fromkeys((grid.rows[0], nearest, grid.rows[-1])):
            title = f"{ratio(row, grid.planted)} entries\n{grid.name_of(grid.columns[-1])}"
            if (row, grid.columns[-1]) in grid.cells:
                chosen.append((title, grid.cells[row, grid.columns[-1]]))
    return chosen or [(short(setting.label), setting) for setting in results.panels]


def _figure(results: RunResults, place: int, title: str, setting: Setting) -> Figure | None:
    stack, position = setting.places[0]
    arrays = results.tracking[stack]
    if not arrays:
        return None
    rates = results.probabilities(setting)
    ranked = np.argsort(-rates, kind="stable")
    shown = ranked[np.unique(np.linspace(0, len(ranked) - 1, SHOWN).round().astype(int))]
    figure, axes = blank(results.source, height=1.9 + 0.2 * len(shown))
    axes.grid(False)
    where = log_steps(axes, arrays["steps"])
    lives = [Life(arrays["best"][position, :, n] >= FOUND, arrays["entry"][position, :, n]) for n in shown]
    for row, life in enumerate(lives):
        _draw_life(axes, -float(row), where, life)
    axes.plot(where, np.full(len(where), 0.75 - len(shown)), "|", color=GREY, markersize=4)
    axes.set_yticks(-np.arange(len(shown)), [f"{rates[n]:.2g}" for n in shown])
    axes.set_ylim(0.5 - len(shown), 0.7)
    name_axes(axes, title, "training step (log)", "probability to fire", TITLE)
    key(figure, _key())
    return Figure(f"timeline-{place}", png(figure), _described(title, lives))


def _draw_life(axes: Axes, y: float, where: np.ndarray, life: Life) -> None:
    axes.plot(where[[0, -1]], [y, y], color="#e6e6e6", linewidth=0.7, zorder=1)
    for check in np.flatnonzero(life.found[:-1]):
        axes.plot(where[check : check + 2], [y, y], color=COLOURS[0], linewidth=2.6, solid_capstyle="butt", zorder=2)
    for marks, marker, colour in (
        (life.born(), "o", COLOURS[0]),
        (life.moved(), "D", COLOURS[4]),
        (life.lost(), "X", COLOURS[1]),
    ):
        axes.plot(
            where[marks],
            np.full(marks.sum(), y),
            marker,
            color=colour,
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=3,
        )


def _key() -> list[Line2D]:
    marks = (("o", COLOURS[0], "learned"), ("D", COLOURS[4], "moved"), ("X", COLOURS[1], "lost"))
    lines = [Line2D([], [], linestyle="", marker=marker, color=colour, label=text) for marker, colour, text in marks]
    return [Line2D([], [], color=COLOURS[0], linewidth=2.6, label="found"), *lines]


def _described(title: str, lives: list[Life]) -> str:
    born, moved, lost = (
        int(np.sum(marks)) for marks in zip(*[(one.born(), one.moved(), one.lost()) for one in lives], strict=True)
    )
    ends = sum(bool(life.found[-1]) for life in lives)
    return (
        f"{title.replace(chr(10), ', ')}: of {len(lives)} true features {ends} are found at the end; "
        f"learned {born}, moved {moved}, lost {lost} times."
    )
