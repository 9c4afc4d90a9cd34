"""The grammar every figure shares: colours of settings, intervals, chance and ceiling, lines, matrices, tooltips.

An interval is a thick line through its dot, single replicates are faint dots, chance is light grey (a tick in a row,
dashed across a plot), a ceiling dark grey: everywhere.
"""

import base64
import io
import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise, product

import altair as alt
import numpy as np
import pandas as pd

from unbraid.figures.words import axis_title, estimate, number
from unbraid.metrics import intervals
from unbraid.results import RunResults

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
"""Okabe and Ito's, with a darker ochre for their yellow, which vanishes on white."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 1], [1, 3], [10, 4], [3, 1, 1, 1])
GREY, CHANCE, CEILING = "#767676", "#8f8f8f", "#3b3b3b"
WIDTH, HEIGHT, ROW, LABEL = 340, 240, 22, 380
"""Pixels of a plot, of a row in it, and of a row's name at most."""
BLUES, DIVERGING = "blues", "blueorange"
TILES = 24
"""So many tooltips a side has a matrix that is drawn as an image."""
MOST_DOTS = 1500
"""Of a scatter plot, at most."""
Colour = alt.Color | alt.ColorValue
BLUE = alt.ColorValue(COLOURS[0])
TOLD = ("label", "row", "part", "model", "when", "k", "L0", "width", "step", "rank", "threshold", "factor", "sharpness")
TOLD += ("in words", "value", "low", "high", "chance in words", "ceiling in words", "n", "pairs", "verdict")
TOLD += ("result", "rule", "reference_label", "ours", "published")
"""What tooltips say unless told otherwise, as far as a table has it."""
TITLES = {"label": "setting", "in words": "value [95 % interval]", "n": "replicates", "low": "95 % from", "high": "to"}
TITLES |= {"chance in words": "chance", "ceiling in words": "ceiling", "reference_label": "compared with"}
TITLES |= {"row": "setting: kind of head"}


def short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def wide(names: Iterable[str]) -> bool:
    """Whether rows of these names need the width of a page."""
    return max(map(len, names), default=0) > 30


def tips(frame: pd.DataFrame, *columns: str) -> list[alt.Tooltip]:
    """A line for each of these columns that the table has, or of `TOLD`: a value and its interval once, in words."""
    said = ("value", "low", "high") if "in words" in frame else ()
    return [
        alt.Tooltip(f"{name}:Q", title=TITLES.get(name, name), format=".5~g")
        if frame[name].dtype.kind == "f"
        else alt.Tooltip(f"{name}:N", title=TITLES.get(name, name.replace("_", " ")))
        for name in columns or [name for name in TOLD if name not in said]
        if name in frame
    ]


def with_words(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """With value, interval, chance and ceiling as a tooltip writes them."""
    signed, cells = "verdict" in frame, zip(frame["value"], frame["low"], frame["high"], strict=True)
    columns = {"in words": [estimate(metric, *cell, signed) for cell in cells]}
    bounds = [name for name in ("chance", "ceiling") if name in frame]
    columns |= {f"{name} in words": [number(metric, value) for value in frame[name]] for name in bounds}
    return frame.assign(**columns)


def colours(column: str, names: Iterable[str], palette: Sequence[str] = COLOURS) -> alt.Color:
    """A colour for each of these names, with a legend below."""
    domain = list(names)
    columns = 1 if max(map(len, domain), default=0) > 24 else 2 if max(map(len, domain), default=0) > 12 else 4
    legend = alt.Legend(title=None, orient="bottom", columns=columns)
    return alt.Color(f"{column}:N", scale=alt.Scale(domain=domain, range=list(palette[: len(domain)])), legend=legend)


def setting_colour(results: RunResults) -> alt.Color:
    """The same colour for one setting in every figure; only those that have a line of their own are drawn."""
    return colours("label", [results.labels[index] for index in results.drawn])


def log_x(column: str, title: str) -> alt.X:
    return alt.X(f"{column}:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=8))


def of_drawn(results: RunResults, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of settings that have a colour."""
    return frame[frame["label"].isin([results.labels[index] for index in results.drawn])]


def line_at(value: float, say: str = "") -> alt.Chart:
    """A thin dashed line across rows: at 0, or at a threshold."""
    frame = pd.DataFrame({"at": [value], "line": [say or f"{value:g}"]})
    rule = alt.Chart(frame).mark_rule(color=GREY, strokeDash=[3, 2])
    return rule.encode(x=alt.X("at:Q"), tooltip=tips(frame, "line"))


def rows(
    frame: pd.DataFrame, metric: str, row: str = "label", colour: Colour = BLUE, by: str | None = None, title: str = ""
) -> alt.LayerChart:
    """A row for each name: dot, interval, chance and ceiling where the table has them; several, if told `by` what."""
    frame, names = with_words(frame, metric), list(dict.fromkeys(frame[row]))
    y = alt.Y(f"{row}:N", sort=names, title=None, axis=alt.Axis(labelLimit=LABEL), scale=alt.Scale(domain=names))
    base = alt.Chart(width=WIDTH, height=alt.Step(12 if by else ROW)).encode(y=y, tooltip=tips(frame))
    base = base.encode(yOffset=alt.YOffset(f"{by}:N", sort=list(dict.fromkeys(frame[by])))) if by else base
    x = partial(alt.X, title=title or axis_title(metric), scale=alt.Scale(zero=False, nice=True))
    layers = [
        base.mark_tick(color=grey, thickness=2, size=ROW * 0.8).encode(x=x(f"{which}:Q"))
        for which, grey in (("chance", CHANCE), ("ceiling", CEILING))
        if which in frame and frame[which].notna().any()
    ]
    base = base.encode(color=colour)
    layers.append(base.mark_rule(strokeWidth=3).encode(x=x("low:Q"), x2=alt.X2("high:Q")))
    layers.append(base.mark_point(filled=True, size=60, opacity=1).encode(x=x("value:Q")))
    return alt.layer(*layers, data=frame)


def interval_rows(results: RunResults, metric: str, frame: pd.DataFrame | None = None) -> alt.LayerChart:
    """A metric by setting, all or those of a table, with their replicates as faint dots."""
    frame = results.of_metric(metric) if frame is None else frame
    members = results.scores[(results.scores["metric"] == metric) & results.scores["label"].isin(frame["label"])]
    dots = faint_dots(members[["label", "replicate", "value"]].dropna(), "label", axis_title(metric))
    return alt.layer(dots, rows(frame, metric))


def faint_dots(frame: pd.DataFrame, row: str, title: str) -> alt.Chart:
    """Replicates, to lay behind `rows`."""
    dots = alt.Chart(frame).mark_circle(opacity=0.3, size=18, color=GREY)
    return dots.encode(y=alt.Y(f"{row}:N"), x=alt.X("value:Q", title=title), tooltip=tips(frame, *frame))


def difference_rows(frame: pd.DataFrame, metric: str, where: str = "") -> alt.LayerChart:
    """Paired differences with their intervals, a line at 0, the verdict by colour."""
    colour = colours("verdict", ("higher", "lower", "undecided"), (*COLOURS[:2], GREY))
    return alt.layer(line_at(0.0), rows(frame, metric, colour=colour, title=f"Δ {axis_title(metric)}{where}"))


def beside(values: dict[str, float], what: str, metric: str) -> alt.Chart:
    """Open diamonds for one more number of each row, to lay over rows."""
    frame = pd.DataFrame(values.items(), columns=["label", what]).dropna()
    diamonds = alt.Chart(frame).mark_point(shape="diamond", size=60, color=COLOURS[1])
    x = alt.X(f"{what}:Q", title=axis_title(metric))
    return diamonds.encode(y=alt.Y("label:N", title=None), x=x, tooltip=tips(frame, "label", what))


def mean_curves(frame: pd.DataFrame, by: Sequence[str] = ("label",), x: str = "step") -> pd.DataFrame:
    """Mean and 95 % interval over replicates at every x: columns value, low, high, n."""
    found = []
    for key, group in frame.dropna(subset=["value"]).groupby([*by, x], sort=False):
        mean = intervals.estimate(group["value"].tolist())
        found.append((*key, mean.value, *(mean.interval or (np.nan, np.nan)), len(group)))
    return pd.DataFrame(found, columns=[*by, x, "value", "low", "high", "n"])


def lines(
    frame: pd.DataFrame,
    x: alt.X,
    title: str,
    colour: Colour,
    dash: alt.StrokeDash | None = None,
    band: bool = False,
    log: bool = False,
    joined: bool = True,
    order: str | None = None,
) -> alt.LayerChart:
    """Values along x, a line a colour, with a band or bars for the 95 % interval; dashed grey for chance."""
    y = partial(alt.Y, title=title, scale=alt.Scale(type="log") if log else alt.Scale(zero=False))
    base = alt.Chart(width=WIDTH, height=HEIGHT).encode(x=x, color=colour, tooltip=tips(frame))
    extent = base.mark_area(opacity=0.18) if band else base.mark_rule(strokeWidth=2, opacity=0.5)
    layers = [extent.encode(y=y("low:Q"), y2=alt.Y2("high:Q"))] if "low" in frame else []
    if "chance" in frame and frame["chance"].notna().any():
        chance = base.mark_line(strokeDash=[4, 3], strokeWidth=1.5)
        layers.append(chance.encode(y=y("mean(chance):Q"), color=alt.ColorValue(CHANCE)))
    line = base.mark_line(strokeWidth=2).encode(y=y("value:Q"))
    points = base.mark_point(filled=True, size=60 if band else 30, opacity=0 if band else 1).encode(y=y("value:Q"))
    line = line if dash is None else line.encode(strokeDash=dash)
    line = line if order is None else line.encode(order=alt.Order(f"{order}:Q"))
    return alt.layer(*layers, *([line] if joined else []), points, data=frame)


def curves(
    results: RunResults,
    frame: pd.DataFrame,
    y_title: str,
    x: str = "step",
    x_title: str = "training step",
    log_y: bool = False,
) -> alt.LayerChart:
    """A line for each drawn setting, with a band for its 95 % interval; `frame` is what `mean_curves` gives."""
    names = [results.labels[index] for index in results.drawn]
    dash = alt.StrokeDash("label:N", scale=alt.Scale(domain=names, range=list(DASHES[: len(names)])), legend=None)
    across = alt.X(f"{x}:Q", title=x_title)
    return lines(of_drawn(results, frame), across, y_title, setting_colour(results), dash, band=True, log=log_y)


def dots(frame: pd.DataFrame, x: alt.X, y: alt.Y, colour: Colour) -> alt.Chart:
    """A dot a row, of many rows some drawn evenly; every column under the pointer."""
    shown = frame.iloc[:: max(1, -(-len(frame) // MOST_DOTS))]
    chart = alt.Chart(shown, width=WIDTH, height=HEIGHT).mark_circle(size=26, opacity=0.6)
    return chart.encode(x=x, y=y, color=colour, tooltip=tips(shown, *shown.columns))


def stacked(
    results: RunResults, frame: pd.DataFrame, names: Sequence[str], palette: Sequence[str], title: str
) -> alt.Chart:
    """Shares that add up to one, a bar a setting: columns label, share, and what it is the share of, one of `names`."""
    frame = frame.assign(order=frame["what"].map(list(names).index))
    chart = alt.Chart(frame, width=WIDTH, height=alt.Step(ROW)).mark_bar()
    y = alt.Y("label:N", sort=results.labels, title=None, axis=alt.Axis(labelLimit=LABEL))
    told = [*tips(frame, "label", "what"), alt.Tooltip("share:Q", format=".1%"), *tips(frame, "n")]
    x = alt.X("share:Q", title=title, stack="zero", scale=alt.Scale(domain=[0, 1]))
    return chart.encode(x=x, y=y, color=colours("what", names, palette), order=alt.Order("order:Q"), tooltip=told)


def level(value: float, text: str, ceiling: bool = False) -> alt.LayerChart:
    """A horizontal line to hold a plot against, with its word beside it: chance dashed and light, a ceiling dark."""
    frame = pd.DataFrame({"y": [value], "what": [f"{text} {value:.3g}"]})
    base = alt.Chart().encode(y=alt.Y("y:Q"), tooltip=tips(frame, "what"))
    colour, dash = (CEILING, [1, 0]) if ceiling else (CHANCE, [4, 3])
    rule = base.mark_rule(strokeWidth=1.5, color=colour, strokeDash=dash)
    words = base.mark_text(align="right", baseline="bottom", dx=-2, dy=-2, color=CEILING)
    return alt.layer(rule, words.encode(text=alt.Text("what:N"), x=alt.XValue("width")), data=frame)


def shared_levels(results: RunResults, metric: str) -> list[alt.LayerChart]:
    """Chance and ceiling of a metric where the settings agree on them (to .02); nothing where they do not."""
    frame, found = results.of_metric(metric), []
    for which in ("chance", "ceiling"):
        values = frame[which].dropna()
        if len(values) and values.max() - values.min() <= 0.02 * max(abs(values.max()), 1e-12):
            found.append(level(float(values.mean()), which, which == "ceiling"))
    return found


def heatmap(
    frame: pd.DataFrame,
    titles: tuple[str, str, str],
    domain: tuple[float, float],
    cell: int,
    words: bool = True,
    root: bool = False,
    names: Sequence[str] = (),
    label: str = "datum.label",
) -> alt.LayerChart:
    """A rectangle for each row of a table: columns `down`, `across` and `value`, and what else is to be told.

    `words` writes the values into the cells; `root` colours by the square root. `names` are all rows and columns where
    some have no cell; `label` is Vega's expression of what stands at an axis.
    """
    low, high = domain
    down, across = (list(names or dict.fromkeys(frame[side])) for side in ("down", "across"))
    axis = alt.Axis(labelExpr=label, labelLimit=LABEL, labelOverlap=False, labelFontSize=min(cell, 12))
    sides = [alt.Tooltip("down:N", title=titles[0]), alt.Tooltip("across:N", title=titles[1])]
    base = alt.Chart(width=alt.Step(cell), height=alt.Step(min(cell, 2 * ROW))).encode(
        x=alt.X("across:N", title=titles[1], sort=across, scale=alt.Scale(domain=across), axis=axis),
        y=alt.Y("down:N", title=titles[0], sort=down, scale=alt.Scale(domain=down), axis=axis),
        tooltip=[*sides, *tips(frame)],
    )
    scale = alt.Scale(type="sqrt" if root else "linear", scheme=BLUES, domain=[low, high])
    layers = [base.mark_rect().encode(color=alt.Color("value:Q", title=titles[2], scale=scale))]
    if words:
        ink = alt.condition(alt.datum.value > low + 0.6 * (high - low), alt.value("white"), alt.value("black"))
        layers.append(base.mark_text(fontSize=11).encode(text=alt.Text("value:Q", format=".2~f"), color=ink))
    return alt.layer(*layers, data=frame)


def image(
    matrix: np.ndarray,
    titles: tuple[str, str, str],
    domain: tuple[float, float],
    scheme: str = BLUES,
    names: tuple[Sequence[str], Sequence[str]] = ((), ()),
    root: bool = False,
) -> alt.LayerChart:
    """A large matrix as one picture, rows downwards; a tooltip by tile has its rows, columns, mean and largest value.

    `names` of rows and columns stand at the axes in place of numbers; `root` colours by the square root.
    """
    n, f = matrix.shape
    width, height = (WIDTH, max(60, round(WIDTH * n / f))) if f >= n else (max(60, round(WIDTH * f / n)), WIDTH)
    width, height = (WIDTH, WIDTH) if any(names) else (width, height)
    seen, ends = (np.sqrt(matrix), (domain[0] ** 0.5, domain[1] ** 0.5)) if root else (matrix, domain)
    picture = png_uri(seen, ends, scheme, WIDTH)
    down, across = map(_named_axis, names)
    x = alt.X("x:Q", title=titles[1], scale=alt.Scale(domain=[0, f]), axis=across)
    y = alt.Y("y:Q", title=titles[0], scale=alt.Scale(domain=[n, 0]), axis=down)
    shown = alt.Chart(pd.DataFrame({"url": [picture], "x": [0], "y": [0]}), width=width, height=height)
    shown = shown.mark_image(aspect=False, align="left", baseline="top", width=width, height=height)
    tiles = _tiles(matrix, titles)
    cells = (
        alt.Chart(tiles)
        .mark_rect(opacity=0)
        .encode(x=alt.X("x:Q"), x2=alt.X2("x2:Q"), y=alt.Y("y:Q"), y2=alt.Y2("y2:Q"))
    )
    return alt.layer(
        shown.encode(x=x, y=y, url=alt.Url("url:N")), cells.encode(tooltip=tips(tiles, *tiles.columns[4:]))
    )


def _named_axis(names: Sequence[str]) -> alt.Axis:
    """Some of the names in place of numbers; the usual axis where there are none."""
    ticks = list(range(0, len(names), max(1, len(names) // 8)))
    return alt.Axis(labelExpr=f"{json.dumps(list(names))}[datum.value]", values=ticks) if names else alt.Axis()


def _tiles(matrix: np.ndarray, titles: tuple[str, str, str]) -> pd.DataFrame:
    down, across = (np.unique(np.linspace(0, size, min(TILES, size) + 1).astype(int)) for size in matrix.shape)
    found = []
    for (top, bottom), (left, right) in product(pairwise(down), pairwise(across)):
        tile = matrix[top:bottom, left:right].astype(float)
        said = (f"{top} – {bottom - 1}", f"{left} – {right - 1}", np.nanmean(tile), np.nanmax(tile))
        found.append((left, right, top, bottom, *said))
    named = (titles[0], titles[1], f"mean {titles[2]}", f"largest {titles[2]}")
    return pd.DataFrame(found, columns=["x", "x2", "y", "y2", *named])


STOPS = {
    BLUES: ((247, 251, 255), (107, 174, 214), (8, 48, 107)),
    DIVERGING: ((5, 80, 160), (247, 247, 247), (200, 90, 0)),
}
"""The colours of an image from its lowest value to its highest."""
SHADES = 64
"""Colours of an image."""


def png_uri(matrix: np.ndarray, domain: tuple[float, float], scheme: str = BLUES, pixels: int = 1) -> str:
    """A matrix as a PNG in a data address, a pixel a cell; or as many as `pixels` a side allow, to stay sharp."""
    from PIL import Image

    low, high = domain
    share = np.nan_to_num(np.clip((matrix.astype(float) - low) / max(high - low, 1e-12), 0, 1))
    picture = Image.fromarray((share * (SHADES - 1)).round().astype(np.uint8))
    stops, steps = np.array(STOPS[scheme]).T, np.linspace(0, len(STOPS[scheme]) - 1, SHADES)
    channels = [np.interp(steps, range(len(channel)), channel) for channel in stops]
    picture.putpalette(np.stack(channels, -1).astype(np.uint8).tobytes())
    buffer, sides = io.BytesIO(), [size * max(1, pixels // size) for size in picture.size]
    picture.resize(sides, Image.Resampling.NEAREST).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
