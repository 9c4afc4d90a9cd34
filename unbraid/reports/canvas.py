"""Blank figures in one style: colour-blind safe, readable on a phone, each naming its run.

Everything is set on the objects themselves, never through pyplot or global settings, so that figures can be drawn
in any thread and need no display.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from unbraid.reports.findings import Findings, Setting

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
"""Okabe and Ito's, with a darker ochre for their yellow, which vanishes on white."""
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY, INK = "#767676", "#1a1a1a"
MOST_LINES = len(COLOURS)
MOST_PANELS = 4
SIZE, SMALL, DPI = 11.5, 9.5, 160
WIDTH, HEIGHT = 4.7, 3.5


@dataclass(frozen=True)
class Picture:
    """A drawn figure: its file name without ending, its PNG, and what it shows in words for who cannot see it."""

    name: str
    png: bytes
    alt: str


@dataclass(frozen=True)
class Plate:
    """Pictures that belong together, under one heading, with a caption on what to see and what the axes are."""

    heading: str
    caption: str
    pictures: list[Picture]


def blank(findings: Findings, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure with one plot that fits half a desk screen or a whole phone."""
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    axes.grid(True, color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    figure.supxlabel(plain(f"run {findings.run.name}"), fontsize=7.5, color=GREY, x=0.99, ha="right")
    return figure, axes


def name_axes(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(plain(title), fontsize=SIZE, fontweight="bold", loc="left", wrap=True, color=INK)
    axes.set_xlabel(plain(x), fontsize=SIZE - 1)
    axes.set_ylabel(plain(y), fontsize=SIZE - 1)


def key(figure: Figure, handles: Sequence[Line2D]) -> None:
    """The legend, under the plot, in two columns where the words are short."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    columns = 2 if longest <= 24 and len(handles) > 1 else 1
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=SMALL, frameon=False, handlelength=2.6
    )


def handle(place: int, label: str, marker: bool = False) -> Line2D:
    """The legend entry of the setting drawn in this place."""
    colour, style = look(place)
    return Line2D(
        [],
        [],
        color=colour,
        linestyle=style,
        linewidth=2.2,
        label=plain(label),
        marker=MARKERS[place % len(MARKERS)] if marker else "",
    )


def look(place: int) -> tuple[str, object]:
    return COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)]


def level(axes: Axes, value: float | None, text: str, style: str) -> Line2D | None:
    """A horizontal line to hold the plot against, and its legend entry."""
    if value is None or not np.isfinite(value):
        return None
    return axes.axhline(value, color=GREY, linestyle=style, linewidth=1.4, label=plain(text), zorder=1)


def shared(settings: Sequence[Setting], metric: str, which: str) -> list[tuple[float, str]]:
    """Chance or ceiling of these settings: one line where they agree (to 0.02 of it), else the lowest and highest."""
    scores = [setting.scores[metric] for setting in settings if metric in setting.scores]
    found = [value for score in scores if (value := score.chance if which == "chance" else score.ceiling) is not None]
    if not found:
        return []
    low, high = min(found), max(found)
    if high - low <= 0.02 * abs(high):
        return [(sum(found) / len(found), which)]
    return [(low, f"lowest {which}"), (high, f"highest {which}")]


def short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain(text: str) -> str:
    """Text in which a dollar is a dollar, not mathematics."""
    return text.replace("$", r"\$")


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # a run may be named in any script
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
