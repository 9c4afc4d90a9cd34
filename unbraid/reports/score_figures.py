"""Figures of scores: every setting and replicate, between chance and ceiling."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from unbraid.reports.canvas import (
    CLEAR,
    GREY,
    INK,
    SMALL,
    SMALLER,
    Figure,
    Section,
    Style,
    blank,
    key,
    left_out,
    name_axes,
    plain,
    png,
    setting_style,
    short,
)
from unbraid.reports.run_results import MOST_ROWS, RunResults, Score, Setting, finite
from unbraid.reports.summaries import summary_of
from unbraid.reports.words import describe_metric, estimate

CHANCE: LineStyleType = (0.0, (2.0, 1.2))
PLOTTED = ("mmcs", "mcc", "recovered", "f1", "evenness", "hopkins", "clustered")
"""Where there is none of these the leading metric is plotted."""


def scores(results: RunResults) -> Section:
    """A row a setting: every replicate, the mean with its interval, chance and ceiling."""
    settings = results.settings if len(results.settings) <= MOST_ROWS else results.drawn
    plotted = [metric for metric in PLOTTED if results.has_score(metric)] or [results.leading]
    caption = (
        "Each row is a setting. Small dots: one per replicate. Large marker: their mean, with its 95 % interval as a "
        f"bar (often narrower than the marker). {_bounds(results)}{left_out(results, settings)}"
    )
    figures = [_figure(results, settings, metric) for metric in plotted]
    bounded = any(
        setting.scores[metric].ceiling is not None
        for metric in plotted
        for setting in settings
        if metric in setting.scores
    )
    heading = "Scores against chance and ceiling" if bounded else "Scores against chance"
    return Section(heading, caption, figures)


def _bounds(results: RunResults) -> str:
    if results.has_truth:
        return (
            "Dashed tick: chance, a random dictionary of the same size. Solid tick: the ceiling, an oracle of the same "
            "size. Scores have no unit; 1 is perfect."
        )
    return f"Dashed tick: chance. {summary_of(results.facts).references(results)}"


def _figure(results: RunResults, settings: list[Setting], metric: str) -> Figure:
    figure, axes = blank(results.source, height=1.75 + 0.52 * len(settings))
    rows = [(setting, setting.scores[metric]) for setting in settings if metric in setting.scores]
    for row, (setting, score) in enumerate(rows):
        name_row(axes, -float(row), setting.label, estimate(metric, score))
        draw_row(axes, -float(row), setting_style(results, setting), score)
    lowest = min((value for _, score in rows for value in finite(score.members)), default=0.0)
    axes.set(xlim=(min(-0.02, lowest * 1.1), 1.03), ylim=(0.6 - len(rows), 0.65), yticks=[])
    axes.spines["left"].set_visible(False)
    words = describe_metric(metric)
    name_axes(axes, words.label, f"{words.label} ({words.direction})", "")
    key(figure, row_key([score for _, score in rows]))
    described = "; ".join(f"{setting.label} {estimate(metric, score)}" for setting, score in rows)
    return Figure(f"score-{metric}", png(figure), f"Dot plot of {words.label}: {described}.")


def row_key(scores: Sequence[Score], chance: str = "chance", ceiling: str = "ceiling") -> list[Line2D]:
    """What is drawn of these scores: of a ceiling only where one has it."""
    marks = [
        Line2D([], [], color=INK, marker="o", markersize=7, linewidth=2.6, label="mean, 95 % interval"),
        Line2D([], [], color=INK, marker="o", markersize=3, linestyle="", alpha=0.6, label="one replicate"),
        Line2D([], [], color=GREY, linestyle=CHANCE, linewidth=2, label=chance),
        Line2D([], [], color=GREY, linewidth=2, label=ceiling),
    ]
    return marks if any(score.ceiling is not None for score in scores) else marks[:-1]


def name_row(axes: Axes, y: float, left: str, right: str) -> None:
    """The setting and its score above the row, where a long name has room."""
    across = axes.get_yaxis_transform()
    size = SMALL if len(left) <= 36 else SMALLER
    axes.text(0, y + 0.36, plain(short(left)), fontsize=size, color=INK, va="center", transform=across, bbox=CLEAR)
    axes.text(1, y + 0.36, right, fontsize=SMALL, color=INK, va="center", ha="right", transform=across, bbox=CLEAR)


def draw_row(axes: Axes, y: float, drawn: Style, score: Score, half: float = 0.18, size: float = 8) -> None:
    """Replicates, their mean with its interval, chance and ceiling, within `half` of y; the mean as large as `size`."""
    marks: list[tuple[float | None, LineStyleType]] = [(score.chance, CHANCE), (score.ceiling, "-")]
    for value, style in marks:
        if value is not None:
            axes.plot([value, value], [y - half, y + half], color=GREY, linestyle=style, linewidth=2)
    members = finite(score.members)
    apart = np.linspace(-0.6, 0.6, len(members)) * half if len(members) > 1 else np.zeros(len(members))
    axes.plot(members, y + apart, "o", color=drawn.colour, markersize=0.4 * size, alpha=0.55, markeredgewidth=0)
    if score.interval is not None:
        axes.plot(score.interval, [y, y], color=drawn.colour, linewidth=0.325 * size, solid_capstyle="butt")
    if score.value is not None:
        axes.plot([score.value], [y], drawn.marker, color=drawn.colour, markersize=size, markeredgecolor="white")
