"""Several scores of every setting in one figure: a row a setting, a column a score, each between chance and ceiling."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unbraid.reports.canvas import GREY, SMALL, SMALLER, Figure, blank_columns, index_style, key, plain, png, short
from unbraid.reports.run_results import MOST_ROWS, RunResults, Score, Setting, finite
from unbraid.reports.score_figures import draw_row, row_key
from unbraid.reports.words import estimate, number

HIGH, ROW = 1.25, 0.36
"""Inches: of what is above and under the rows, and of a row."""


@dataclass(frozen=True)
class Column:
    """A score of some settings, by the settings' places; its name, and the metric whose digits its numbers have."""

    name: str
    metric: str
    scores: dict[int, Score]


@dataclass(frozen=True)
class Words:
    """What is along the axis, and what the ticks are."""

    unit: str
    chance: str
    ceiling: str = "ceiling"


def rows_of(results: RunResults) -> list[Setting]:
    """The settings there is room for."""
    return results.settings if len(results.settings) <= MOST_ROWS else results.drawn


def draw_columns(results: RunResults, name: str, title: str, columns: Sequence[Column], words: Words) -> Figure:
    settings = rows_of(results)
    figure, every = blank_columns(results.source, title, len(columns), HIGH + ROW * len(settings))
    limits = _limits([score for column in columns for score in column.scores.values()])
    for axes, column in zip(every, columns, strict=True):
        across = axes.get_yaxis_transform()
        axes.hlines(-np.arange(len(settings)), 0, 1, "#f0f0f0", linewidth=7, zorder=0, transform=across)
        for row, setting in enumerate(settings):
            if score := column.scores.get(setting.index):
                draw_row(axes, -float(row), index_style(results, setting), score, half=0.3, size=6.5)
                described = number(column.metric, score.value).replace("0.", ".", 1)
                axes.text(
                    1.0, -row, described, fontsize=SMALLER - 0.6, color=GREY, va="center", ha="right", transform=across
                )
        axes.set_title(plain(column.name), fontsize=SMALL, fontweight="bold", loc="left")
        axes.set(xlim=limits, ylim=(0.5 - len(settings), 0.5), xticks=[0, 0.5, 1])
        axes.set_xticklabels(["0", ".5", "1"])
        axes.grid(visible=False, axis="y")
    every[0].set_yticks([-row for row in range(len(settings))])
    every[0].set_yticklabels([plain(short(setting.label, 30)) for setting in settings], fontsize=SMALL)
    every[len(every) // 2].set_xlabel(words.unit, fontsize=SMALL)
    key(
        figure,
        row_key([score for column in columns for score in column.scores.values()], words.chance, words.ceiling),
        wide=True,
    )
    return Figure(
        name, png(figure), f"Dot plots: {'. '.join(_described(column, settings) for column in columns)}.", True
    )


def _described(column: Column, settings: Sequence[Setting]) -> str:
    each = [
        f"{one.label} {estimate(column.metric, column.scores[one.index])}"
        for one in settings
        if one.index in column.scores
    ]
    return f"{column.name}: {'; '.join(each)}"


def _limits(scores: Sequence[Score]) -> tuple[float, float]:
    """From 0 or below to 1, and room for a number beside it."""
    values = [value for score in scores for value in finite([*score.members, score.chance])]
    low = min(-0.04, min(values, default=0.0) - 0.03)
    return low, 1.04 + 0.34 * (1.04 - low)
