"""Figures of features one by one: how well each true one was found, and how often each learned one fires."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.reports.canvas import (
    COLOURS,
    HEIGHT,
    MARKERS,
    MOST_LINES,
    MOST_PANELS,
    SMALL,
    Picture,
    Plate,
    blank,
    handle,
    key,
    level,
    look,
    name_axes,
    png,
    short,
)
from unbraid.reports.findings import Findings, Setting
from unbraid.reports.words import number

PIXELS = 128
"""The widest cosine matrix drawn cell by cell; larger ones are drawn in blocks."""
BINS = 40


def recovery(findings: Findings) -> Plate:
    """Each true feature's best cosine against how often it fires, a picture a setting."""
    settings = findings.some(MOST_PANELS)
    pictures = [_recovery_picture(findings, settings, place) for place in range(len(settings))]
    caption = (
        "Each dot is a true feature: how often it fires (x, probability per sample, log scale) and the cosine of the learned feature most "
        "like it (y, 1 is perfect), mean over replicates; the vertical bar runs from the worst to the best replicate. Bold line: "
        f"running median; thin grey lines: that of the other settings drawn. Rare features are harder to find.{_left_out(findings, settings)}"
    )
    return Plate("Recovery of every true feature", caption, pictures)


def cosines(findings: Findings) -> Plate:
    """Truth against dictionary, matched pairs on the diagonal."""
    settings = findings.some(MOST_PANELS)
    pictures = [_cosine_picture(findings, setting, place) for place, setting in enumerate(settings)]
    caption = (
        "Rows are true features, matched ones first, in planted order; columns are learned features in the order of their one-to-one match. A "
        "perfect dictionary is a bright diagonal on a dark ground; a break in the diagonal is a feature that was not found, brightness off "
        "it is a learned feature that mixes several or repeats one. First replicate of each setting. Cosines below 0 are drawn as 0; where "
        f"the title says so, a pixel is the largest cosine of a block.{_left_out(findings, settings)}"
    )
    return Plate("Dictionary against truth", caption, [picture for picture in pictures if picture])


def firing_rates(findings: Findings) -> Plate:
    """How often learned features fire, beside how often the planted ones do."""
    settings = findings.some(MOST_LINES)
    caption = (
        "How many features of a dictionary (y, mean over replicates) fire how often (x, share of samples, log scale). The grey area is the "
        "planted truth: a dictionary that found it has the same outline. Features that never fired have no place on a log scale: "
        f"they are counted in the legend.{_left_out(findings, settings)}"
    )
    return Plate("Firing rates", caption, [_rates_picture(findings, settings)])


def _recovery_picture(findings: Findings, settings: list[Setting], place: int) -> Picture:
    setting, colour = settings[place], COLOURS[place]
    figure, axes = blank(findings, height=HEIGHT + 0.35)
    rates, found = findings.probabilities(setting), findings.table(setting, "best_cosine")
    others = [_running_median(findings, other) for other in settings if other is not setting]
    for x, y in others:
        axes.plot(x, y, color="#a8a8a8", linewidth=1.2, zorder=2)
    if len(found) > 1:
        axes.vlines(rates, found.min(0), found.max(0), color=colour, linewidth=0.7, alpha=0.35, zorder=1)
    axes.plot(rates, found.mean(0), MARKERS[place], color=colour, markersize=3, alpha=0.6, markeredgewidth=0, zorder=3)
    axes.plot(*_running_median(findings, setting), color="black", linewidth=2, zorder=4)
    lines = [
        level(axes, 0.9, "0.9: counted as recovered", "-"),
        level(axes, setting.scores["mmcs"].chance, "chance", ":"),
    ]
    if np.ptp(np.log(rates)) > 0.1:
        axes.set_xscale("log")
    axes.set_ylim(min(0.0, float(found.min())), 1.04)
    score = number("mmcs", setting.value("mmcs"))
    name_axes(axes, short(setting.label), "firing probability of the true feature", "best cosine")
    key(figure, [Line2D([], [], color="black", linewidth=2, label="running median"), *[line for line in lines if line]])
    share = float((found.mean(0) >= 0.9).mean())
    alt = f"{setting.label}: best cosine of each true feature against its firing probability; mean {score}, {share:.0%} at 0.9 or above."
    return Picture(f"recovery-{place + 1}", png(figure), alt)


def _running_median(findings: Findings, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Of the mean best cosine, over neighbouring firing probabilities."""
    rates, found = findings.probabilities(setting), findings.table(setting, "best_cosine").mean(0)
    order = np.argsort(rates, kind="stable")
    window = max(1, min(len(order), max(5, len(order) // 24)))
    view = np.lib.stride_tricks.sliding_window_view
    return np.median(view(rates[order], window), axis=1), np.median(view(found[order], window), axis=1)


def _cosine_picture(findings: Findings, setting: Setting, place: int) -> Picture | None:
    table = findings.cosines(setting)
    if table is None:
        return None
    block = -(-max(table.shape) // PIXELS)
    figure, axes = blank(findings, height=4.4)
    axes.grid(False)
    extent = (0.5, table.shape[1] + 0.5, table.shape[0] + 0.5, 0.5)
    image = axes.imshow(_blocks(table, block), cmap="cividis", vmin=0, vmax=1, extent=extent, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("cosine", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    size = f"\n(each pixel: the largest of {block} × {block})" if block > 1 else ""
    name_axes(axes, f"{short(setting.label)}{size}", "learned feature, in matched order", "true feature")
    diagonal = np.diagonal(table)
    alt = f"{setting.label}: cosines of {table.shape[0]} true with {table.shape[1]} learned features; on the diagonal {diagonal.mean():.2f} on average."
    return Picture(f"cosines-{place + 1}", png(figure), alt)


def _blocks(table: np.ndarray, block: int) -> np.ndarray:
    """The largest value of each block, so that a thin diagonal survives a small picture."""
    rows, columns = (-(-length // block) * block for length in table.shape)
    padded = np.full((rows, columns), -1.0)
    padded[: table.shape[0], : table.shape[1]] = table
    return padded.reshape(rows // block, block, columns // block, block).max((1, 3))


def _rates_picture(findings: Findings, settings: list[Setting]) -> Picture:
    figure, axes = blank(findings, height=HEIGHT + 0.3 + 0.2 * len(settings))
    found = [findings.table(setting, "density") for setting in settings]
    planted = findings.probabilities(settings[0])
    edges = _edges(np.concatenate([planted, *[table.ravel() for table in found]]))
    axes.hist(planted, edges, color="#cfcfcf", zorder=1)
    handles = [Line2D([], [], color="#cfcfcf", linewidth=7, label=f"planted: {len(planted)} true features")]
    for place, (setting, table) in enumerate(zip(settings, found, strict=True)):
        _draw_rates(axes, place, table, edges)
        handles.append(handle(place, f"{short(setting.label)}: {_dead(table)}"))
    axes.set_xscale("log")
    name_axes(axes, "How often features fire", "firing rate (share of samples)", "features per dictionary")
    key(figure, handles)
    told = "; ".join(f"{setting.label}: {_dead(table)}" for setting, table in zip(settings, found, strict=True))
    return Picture(
        "firing-rates", png(figure), f"Histogram of firing rates of learned features over the planted ones. {told}."
    )


def _draw_rates(axes: Axes, place: int, table: np.ndarray, edges: np.ndarray) -> None:
    counts = np.stack([np.histogram(row[row > 0], edges)[0] for row in table]).mean(0)
    colour, style = look(place)
    axes.stairs(counts, edges, color=colour, linestyle=style, linewidth=2, zorder=3)


def _edges(rates: np.ndarray) -> np.ndarray:
    """Bins of equal width in the logarithm, over every rate above 0."""
    low, high = float(rates[rates > 0].min()), float(rates.max())
    return np.geomspace(low / 1.1, high * 1.1, BINS + 1)


def _dead(table: np.ndarray) -> str:
    dead = float((table == 0).sum(1).mean())
    return f"{dead:.4g} dead of {table.shape[1]}"


def _left_out(findings: Findings, settings: list[Setting]) -> str:
    if len(settings) == len(findings.settings):
        return ""
    return f" Drawn: {len(settings)} of the {len(findings.settings)} settings, spread evenly from the highest MMCS to the lowest."
