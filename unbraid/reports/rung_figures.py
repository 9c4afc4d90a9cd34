"""Figures of a ladder while it trains, and of how its features are used: a small plot a rung, on the same axes.

What the seed's plot.py called training_curves (the loss), sparsity_evolution (it drew the sparsity loss; here L0) and
feature_usage (which nothing wrote; here how often each feature fires).
"""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from unbraid.metrics.intervals import Estimate, estimate
from unbraid.reports.bands import Band
from unbraid.reports.canvas import (
    COLOURS,
    GREY,
    INK,
    SMALL,
    SMALLER,
    Picture,
    Plate,
    blank_panels,
    key,
    make_log,
    plain,
    png,
    shared,
)
from unbraid.reports.findings import Curve, Findings, Setting
from unbraid.reports.ladder import Ladder, read_ladder

PANEL = 1.22
PALE = "#a0a0a0"


def rungs(findings: Findings) -> Plate:
    """Three pictures, where a run has rungs and logged or kept what they show."""
    ladder = read_ladder(findings)
    drawn: list[Picture | None] = []
    strength = ""
    if ladder and ladder.rungs:
        strength = f" ({ladder.plain.middle.label.removeprefix(ladder.plain.name).strip(' ,')})"
        drawn = [_losses(findings, ladder), _l0(findings, ladder), _usage(findings, ladder)]
    caption = (
        "A small plot a rung of the ladder, each on the same axes and beside plain in grey; each rung has what the one "
        f"before has and one mechanism more. Lines are means over seeds at the middle strength of sparsity{strength}, "
        "bands their 95 % intervals (often narrower than the line). Loss: the sum of all terms, which rungs differ in, "
        "and dashed the reconstruction alone, which they share. Usage: the firing rates of a dictionary's features, "
        "most used first; where the line ends, the rest are dead."
    )
    return Plate("The ladder, rung by rung", caption, [picture for picture in drawn if picture])


def total_loss(findings: Findings, setting: Setting) -> Curve | None:
    """The sum of the terms this setting logged."""
    terms = [curve for term in findings.terms() if (curve := findings.curve(setting, term, term=True))]
    return Curve(terms[0].steps, np.sum([curve.values for curve in terms], axis=0)) if terms else None


def usage(findings: Findings, setting: Setting) -> tuple[Band, Estimate]:
    """Firing rates by rank, as a band over seeds; x is the share of features used as much or more. And dead share."""
    rates = -np.sort(-np.nan_to_num(findings.table(setting, "density")), axis=1)
    amount = rates.shape[1]
    dead = estimate((rates == 0).mean(1).tolist())
    return Band.over_seeds(100 * np.arange(1, amount + 1) / amount, rates), dead


def _losses(findings: Findings, ladder: Ladder) -> Picture | None:
    found = [total_loss(findings, case.middle) for case in ladder.rungs]
    totals = _bands(found)
    costs = [findings.curve(case.middle, "reconstruction", term=True) for case in ladder.rungs]
    dashed = [cost for cost in costs if cost] if all(costs) else []
    if not totals:
        return None

    def draw(axes: Axes, place: int) -> str:
        totals[place].draw(axes, COLOURS[0])
        if dashed:
            cost = dashed[place]
            axes.plot(cost.steps, cost.values.mean(0), "--", color=COLOURS[1], linewidth=1.4, zorder=4)
        return f"ends at {totals[place].mean[-1]:.3g}"

    figure, told = _panels(findings, ladder, "Training curves: loss", draw, totals)
    _scale(figure, [*[band.mean for band in totals], *[cost.values.mean(0) for cost in dashed]])
    _name(figure, "training step", "cost per sample")
    handles = [_line(COLOURS[0], "-", "loss, this rung"), _line(PALE, "-", "loss, plain")]
    key(figure, [*handles, *([_line(COLOURS[1], "--", "its reconstruction")] if dashed else [])])
    return Picture("training_curves", png(figure), f"Loss against training step, rung by rung: {told}.")


def _l0(findings: Findings, ladder: Ladder) -> Picture | None:
    found = _bands([findings.curve(case.middle, "l0") for case in ladder.rungs])
    if not found:
        return None
    levels = shared([case.middle for case in ladder.rungs], "l0", "ceiling")[:1]

    def draw(axes: Axes, place: int) -> str:
        found[place].draw(axes, COLOURS[0])
        for value, _ in levels:
            axes.axhline(value, color=GREY, linestyle=":", linewidth=1.2)
        return f"ends at {found[place].mean[-1]:.3g}"

    figure, told = _panels(findings, ladder, "Sparsity evolution: L0 while training", draw, found)
    _scale(figure, [band.mean for band in found])
    _name(figure, "training step", "L0 (features per sample)")
    handles = [_line(COLOURS[0], "-", "this rung"), _line(PALE, "-", "plain")]
    key(figure, [*handles, *[_line(GREY, ":", "what truly fires") for _ in levels]])
    return Picture("sparsity_evolution", png(figure), f"L0 against training step, rung by rung: {told}.")


def _usage(findings: Findings, ladder: Ladder) -> Picture | None:
    if not findings.has("density"):
        return None
    found = [usage(findings, case.middle) for case in ladder.rungs]
    bands = [band for band, _ in found]
    true = _planted(findings, ladder.plain.middle)

    def draw(axes: Axes, place: int) -> str:
        axes.fill_between(true[0], true[1], color="#dcdcdc", linewidth=0, zorder=1)
        bands[place].draw(axes, COLOURS[0])
        words = f"dead {_percent(found[place][1])}"
        axes.text(0.97, 0.93, words, ha="right", va="top", fontsize=SMALLER, color=INK, transform=axes.transAxes)
        return words

    figure, told = _panels(findings, ladder, "Feature usage: how often each feature fires", draw, bands)
    seen = np.concatenate([np.concatenate([band.mean for band in bands]), true[1]])
    make_log(figure.axes[0], "y", float(seen[seen > 0].min()), 1.0)  # above every rate, room for the words
    figure.axes[0].set_xlim(0, 100)
    _name(figure, "features, most used first (%)", "firing rate (share of samples, log)")
    handles = [_line(COLOURS[0], "-", "this rung"), _line(PALE, "-", "plain")]
    true_line = Line2D([], [], color="#dcdcdc", linewidth=7, label="planted features")
    key(figure, [*handles, *([true_line] if true[0].size else [])])
    return Picture("feature_usage", png(figure), f"Firing rates of features by rank, rung by rung: {told}.")


def _planted(findings: Findings, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The planted firing rates by rank, on the axis of the dictionary's features."""
    if not findings.is_planted:
        return np.zeros(0), np.zeros(0)
    rates = -np.sort(-findings.probabilities(setting))
    return 100 * np.arange(1, len(rates) + 1) / findings.table(setting, "density").shape[1], rates


def _bands(curves: Sequence[Curve | None]) -> list[Band]:
    return [Band.over_seeds(one.steps, one.values) for one in curves if one] if all(curves) else []


def _panels(
    findings: Findings, ladder: Ladder, title: str, draw: Callable[[Axes, int], str], bands: Sequence[Band]
) -> tuple[Figure, str]:
    """A plot a rung, plain's line in each; and what `draw` tells of them."""
    figure, every = blank_panels(findings.source, title, len(ladder.rungs), PANEL)
    names = [ladder.rung_title(case) for case in ladder.rungs]
    size = SMALL if max(map(len, names)) <= 24 else SMALLER
    told: list[str] = []
    for place, (axes, name) in enumerate(zip(every, names, strict=True)):
        if place:
            axes.plot(bands[0].x, bands[0].mean, color=PALE, linewidth=1.4, zorder=2)
        told.append(f"{name} {draw(axes, place)}")
        axes.set_title(plain(name), fontsize=size, loc="left", color=INK)
    return figure, "; ".join(told)


def _name(figure: Figure, x: str, y: str) -> None:
    """One name for all y axes; the x axes at the foot of both columns have theirs."""
    log = " (log)" if figure.axes[0].get_yscale() == "log" and "log" not in y else ""
    for axes in [axes for axes in figure.axes if axes.axison][-2:]:
        axes.set_xlabel(x, fontsize=SMALL - 0.7)
    figure.supylabel(f"{y}{log}", fontsize=SMALL)


def _scale(figure: Figure, lines: Sequence[np.ndarray]) -> None:
    """From 0, or in the logarithm where values span more than a factor of 20."""
    axes = figure.axes[0]
    axes.set_xlim(left=0)
    seen = np.concatenate(lines)
    low, high = float(seen.min()), float(seen.max())
    if low > 0 and high > 20 * low:
        make_log(axes, "y", low, high)
    else:
        axes.set_ylim(min(0.0, low), 1.08 * high if high > 0 else 1)


def _line(colour: str, style: LineStyleType, label: str) -> Line2D:
    return Line2D([], [], color=colour, linestyle=style, linewidth=2, label=label)


def _percent(share: Estimate) -> str:
    bounds = "" if share.interval is None else " [{:.0f}, {:.0f}]".format(*(100 * end for end in share.interval))
    return f"{100 * share.value:.0f} %{bounds}"
