"""Figures of the dictionary's features: what each looks like beside the truth, and how often each fires."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from unbraid.reports.canvas import (
    HEIGHT,
    SMALL,
    Figure,
    Section,
    Style,
    blank,
    handle,
    key,
    left_out,
    make_log,
    name_axes,
    png,
    setting_style,
    short,
)
from unbraid.reports.run_results import RunResults, Setting

PIXELS = 128
"""The widest cosine matrix drawn cell by cell; larger ones are drawn in blocks."""
BINS = 40


def cosines(results: RunResults) -> Section:
    """Truth against dictionary, matched pairs on the diagonal."""
    settings = results.panels
    figures = [_cosine_picture(results, setting, place) for place, setting in enumerate(settings)]
    tables = [results.cosines(setting) for setting in settings]
    uneven = any(table is not None and table.shape[0] != table.shape[1] for table in tables)
    unmatched = "; what has no match comes last, past the dashed line" if uneven else ""
    caption = (
        "Rows are true features in planted order; columns are learned features in the order of their one-to-one "
        f"match{unmatched}. A perfect dictionary is a bright diagonal on a dark ground: where it is dim a feature was "
        "not found; brightness off it is a learned feature that repeats or mixes true ones. First replicate of each "
        "setting. Cosines below 0 are drawn as 0; where the title says so, a pixel is the largest cosine of a "
        f"block.{left_out(results, settings)}"
    )
    return Section("Dictionary against truth", caption, [figure for figure in figures if figure])


def firing_rates(results: RunResults) -> Section:
    """How often learned features fire, beside how often the planted ones do."""
    if not results.has("density"):
        return Section("", "", [])
    settings = results.drawn
    truth = "Grey: the planted truth; a dictionary that found it has the same outline. " if results.has_truth else ""
    caption = (
        "How many features of a dictionary (y, mean over replicates) fire how often (x, share of samples, log scale). "
        f"{truth}Features that never fired have no place on a log scale: the legend counts them, as a mean over "
        f"replicates.{left_out(results, settings)}"
    )
    return Section("Firing rates", caption, [_rates_picture(results, settings)])


def _cosine_picture(results: RunResults, setting: Setting, place: int) -> Figure | None:
    table = results.cosines(setting)
    if table is None:
        return None
    true, learned = table.shape
    high, wide = -(-true // PIXELS), -(-learned // PIXELS)
    figure, axes = blank(results.source, height=4.3)
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    image = _draw_blocks(axes, table, high, wide)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("cosine", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    down = "true feature" if learned >= true else "true feature, matched first"
    size = f"\n(each pixel: the largest of {high} × {wide})" if high * wide > 1 else ""
    name_axes(axes, f"{short(setting.label)}{size}", "learned feature, in matched order", down)
    matched = np.diagonal(table).mean(dtype=float)
    alt = f"{setting.label}: cosines of {true} true with {learned} learned features; {matched:.2f} on the diagonal."
    return Figure(f"cosines-{place + 1}", png(figure), alt)


def _draw_blocks(axes: Axes, table: np.ndarray, high: int, wide: int) -> AxesImage:
    """The largest value of each block, so that a thin diagonal survives a small figure."""
    true, learned = table.shape
    rows, columns = -(-true // high), -(-learned // wide)
    padded = np.full((rows * high, columns * wide), -1, table.dtype)
    padded[:true, :learned] = table
    blocks = padded.reshape(rows, high, columns, wide).max((1, 3)).astype(float)
    extent = (0.5, columns * wide + 0.5, rows * high + 0.5, 0.5)
    image = axes.imshow(blocks, cmap="cividis", vmin=0, vmax=1, extent=extent, interpolation="nearest", aspect="auto")
    axes.set_xlim(0.5, learned + 0.5)
    axes.set_ylim(true + 0.5, 0.5)
    if true != learned:  # where the diagonal ends
        end = min(true, learned) + 0.5
        (axes.axvline if learned > true else axes.axhline)(end, color="white", linewidth=1.2, linestyle="--")
    return image


def _rates_picture(results: RunResults, settings: list[Setting]) -> Figure:
    figure, axes = blank(results.source, height=HEIGHT + 0.3 + 0.2 * len(settings))
    found = [results.table(setting, "density") for setting in settings]
    planted = results.probabilities(settings[0])
    edges = _edges(np.concatenate([planted, *[table.ravel() for table in found]]))
    handles = _draw_planted(axes, results, settings, edges) if results.has_truth else []
    for setting, table in zip(settings, found, strict=True):
        drawn = setting_style(results, setting)
        _draw_rates(axes, drawn, table, edges)
        handles.append(handle(drawn, f"{short(setting.label)}: {_dead(table)}"))
    make_log(axes, "x", edges[0], edges[-1])
    name_axes(axes, "How often features fire", "firing rate (share of samples)", "features per dictionary")
    key(figure, handles)
    described = "; ".join(f"{setting.label}: {_dead(table)}" for setting, table in zip(settings, found, strict=True))
    over = " over the planted ones" if results.has_truth else ""
    return Figure("firing-rates", png(figure), f"Histogram of firing rates of learned features{over}. {described}.")


def _draw_planted(axes: Axes, results: RunResults, settings: list[Setting], edges: np.ndarray) -> list[Line2D]:
    planted = results.probabilities(settings[0])
    axes.hist(planted, edges.tolist(), color="#cfcfcf", zorder=1)
    differ = any(not np.array_equal(planted, results.probabilities(setting)) for setting in settings)
    whose = " (first setting's)" if differ else ""
    return [Line2D([], [], color="#cfcfcf", linewidth=7, label=f"planted: {len(planted)} true features{whose}")]


def _draw_rates(axes: Axes, drawn: Style, table: np.ndarray, edges: np.ndarray) -> None:
    counts = np.stack([np.histogram(row[row > 0], edges)[0] for row in table]).mean(0)
    axes.stairs(counts, edges, color=drawn.colour, linestyle=drawn.dashes, linewidth=2, zorder=3)


def _edges(rates: np.ndarray) -> np.ndarray:
    """Bins of equal width in the logarithm, over every rate above 0."""
    fired = rates[rates > 0]
    low, high = (float(fired.min()), float(fired.max())) if fired.size else (0.1, 1.0)
    return np.geomspace(low / 1.1, high * 1.1, BINS + 1)


def _dead(table: np.ndarray) -> str:
    dead = float((table == 0).sum(1).mean())
    return f"{dead:.3g} dead of {np.isfinite(table).sum(1).max()}"
