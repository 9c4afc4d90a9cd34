"""Blank figures in one style: colour-blind safe, readable on a phone, each naming its run.

Everything is set on the objects themselves, never through pyplot or global settings, so that figures can be drawn
in any thread and need no display.
"""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.typing import LineStyleType

from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.words import describe_metric

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
"""Okabe and Ito's, with a darker ochre for their yellow, which vanishes on white."""
DASHES: tuple[LineStyleType, ...] = (
    "-",
    "--",
    "-.",
    ":",
    (0.0, (5.0, 1.0, 1.0, 1.0, 1.0, 1.0)),
    (0.0, (8.0, 2.0)),
    (0.0, (3.0, 1.0, 1.0, 1.0)),
    (0.0, (1.0, 1.0)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY, INK = "#767676", "#1a1a1a"
SIGNS = {"higher": "▲", "lower": "▼", "undecided": "○"}
"""Of a verdict on a difference."""
CLEAR = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 0.6}
"""Behind words that stand clear of a line."""
SIZE, SMALL, SMALLER, DPI = 11.5, 9.5, 7.8, 160
WIDTH, HEIGHT = 4.7, 3.5


@dataclass(frozen=True)
class Figure:
    """A drawn image: its file name without ending, its PNG, and what it shows in words for who cannot see it."""

    name: str
    png: bytes
    alt: str
    wide: bool = False
    """Whether it needs the whole width of a page."""


@dataclass(frozen=True)
class Section:
    """Pictures that belong together, under one heading, with a caption on what to see and what the axes are."""

    heading: str
    caption: str
    figures: list[Figure]
    numbers: str = ""
    """What stands under the caption, as HTML."""


def blank(source: str, height: float = HEIGHT) -> tuple[MatplotlibFigure, Axes]:
    """A figure with one plot that fits half a desk screen or a whole phone; `source` says in a corner whence it is."""
    figure = _sheet(height)
    axes = figure.add_subplot()
    _style_axes(axes, SMALL)
    figure.suptitle(plain(short(source, 64)), fontsize=7.5, color=GREY, x=0.99, ha="right")
    return figure, axes


def blank_panels(source: str, title: str, amount: int, height: float) -> tuple[MatplotlibFigure, list[Axes]]:
    """A figure of so many small plots on the same axes, two in a row, each of this height, under one title."""
    rows = -(-amount // 2)
    figure = _sheet(1.3 + rows * height)
    every = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for axes in every:
        _style_axes(axes, SMALLER)
    if amount % 2:
        every.pop().set_axis_off()
        every[-2].tick_params(labelbottom=True)
    figure.text(0.99, 0.998, plain(short(source, 64)), fontsize=7.5, color=GREY, ha="right", va="top")
    figure.suptitle(f"\n{plain(title)}", fontsize=SIZE, fontweight="bold", color=INK, x=0.02, ha="left")
    return figure, every


def blank_grid(source: str, title: str, amount: int, columns: int, side: float) -> tuple[MatplotlibFigure, list[Axes]]:
    """A figure of so many small square plots, so many in a row, each of this side, under one title."""
    rows = -(-amount // columns)
    figure = _sheet(0.9 + rows * side, 0.5 + columns * side)
    every = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in every:
        _style_axes(axes, SMALLER)
    for axes in every[amount:]:
        axes.set_axis_off()
    figure.text(0.99, 0.998, plain(short(source, 64)), fontsize=7.5, color=GREY, ha="right", va="top")
    figure.suptitle(f"\n{plain(short(title, 90))}", fontsize=SMALL, fontweight="bold", color=INK, x=0.02, ha="left")
    return figure, every[:amount]


def blank_columns(source: str, title: str, amount: int, height: float) -> tuple[MatplotlibFigure, list[Axes]]:
    """A wide figure of so many plots in one row on the same axes, under one title."""
    figure = _sheet(height, 2 * WIDTH)
    every = figure.subplots(1, amount, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for axes in every:
        _style_axes(axes, SMALLER)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.text(0.99, 0.995, plain(short(source, 64)), fontsize=7.5, color=GREY, ha="right", va="top")
    figure.suptitle(plain(title), fontsize=SIZE, fontweight="bold", color=INK, x=0.01, ha="left")
    return figure, every


def _sheet(height: float, width: float = WIDTH) -> MatplotlibFigure:
    layout = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.07)
    figure = MatplotlibFigure(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _style_axes(axes: Axes, size: float) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=size)
    axes.grid(True, color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)


def name_axes(axes: Axes, title: str, x: str, y: str, size: float = SIZE) -> None:
    axes.set_title(plain(title), fontsize=size, fontweight="bold", loc="left", wrap=True, color=INK)
    axes.set_xlabel(plain(x), fontsize=SIZE - 1)
    axes.set_ylabel(plain(y), fontsize=SIZE - 1)


def make_log(axes: Axes, which: Literal["x", "y"], low: float, high: float) -> None:
    """A log scale from low to high, its ticks written as plain numbers and never so many that they collide."""
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low / 1.15, high * 1.15)})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 40 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def key(figure: MatplotlibFigure, handles: Sequence[Line2D], wide: bool = False) -> None:
    """The legend, under the plot, in two columns where the words are short; under a wide one in one row."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    columns = len(handles) if wide else 2 if longest <= 22 and len(handles) > 1 else 1
    size = SMALL if longest <= 44 else SMALLER
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=size, frameon=False, handlelength=2.6
    )


@dataclass(frozen=True)
class Style:
    """How a setting is drawn in every figure; colour, dashes and marker each identify it alone."""

    colour: str
    dashes: LineStyleType
    marker: str


def style_at(place: int) -> Style:
    """After eight places colours come again, with other dashes and markers."""
    again, place = divmod(place, len(COLOURS))
    other = (place + again) % len(COLOURS)
    return Style(COLOURS[place], DASHES[other], MARKERS[other])


def setting_style(results: RunResults, setting: Setting) -> Style:
    """The same for one setting in every figure; those that have no line of their own are plain dots."""
    if setting not in results.drawn:
        return Style(GREY, "-", "o")
    place = results.drawn.index(setting)
    return Style(COLOURS[place], DASHES[place], MARKERS[place])


def index_style(_results: RunResults, setting: Setting) -> Style:
    """By its place among all settings: for figures in which every setting has a row."""
    return style_at(setting.index)


def handle(drawn: Style, label: str, marker: bool = False) -> Line2D:
    """The legend entry of a setting."""
    shape = drawn.marker if marker else ""
    return Line2D([], [], color=drawn.colour, linestyle=drawn.dashes, linewidth=2.2, marker=shape, label=plain(label))


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


def left_out(results: RunResults, shown: Sequence[Setting]) -> str:
    """Say when not every setting is drawn."""
    if len(shown) == len(results.settings):
        return ""
    leading = describe_metric(results.leading).label
    return (
        f" Drawn: {len(shown)} of the {len(results.settings)} settings, spread evenly from the best {leading} to the "
        "worst; the table has all."
    )


def short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def plain(text: str) -> str:
    """Text in which a dollar is a dollar, not mathematics."""
    return text.replace("$", r"\$")


def png(figure: MatplotlibFigure) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # a run may be named in any script
        FigureCanvasAgg(figure).print_png(buffer, pil_kwargs={"compress_level": 3})  # `savefig` draws twice
    return buffer.getvalue()
