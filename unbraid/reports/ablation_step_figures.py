"""Figures of a cumulative ablation: training and use of features, a small plot a step, on the same axes.

The plot.py of the mechanisms study called them training_curves (the loss), sparsity_evolution (it drew the sparsity
loss; here L0) and feature_usage (which nothing wrote; here how often each feature fires).
"""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from unbraid.metrics.intervals import Estimate, estimate
from unbraid.reports.ablation import Ablation, read_ablation
from unbraid.reports.bands import Band
from unbraid.reports.canvas import (
    COLOURS,
    GREY,
    INK,
    SMALL,
    SMALLER,
    Figure,
    Section,
    blank_panels,
    key,
    make_log,
    plain,
    png,
    shared,
)
from unbraid.reports.run_results import Curve, RunResults, Setting

PANEL = 1.22
PALE = "#a0a0a0"


def steps(results: RunResults) -> Section:
    """Three figures, where a run has steps and logged or kept what they show."""
    ablation = read_ablation(results)
    drawn: list[Figure | None] = []
    strength = ""
    if ablation and ablation.steps:
        strength = f" ({ablation.plain.middle.label.removeprefix(ablation.plain.name).strip(' ,')})"
        drawn = [_losses(results, ablation), _l0(results, ablation), _usage(results, ablation)]
    caption = (
        "One small plot for each step of the cumulative ablation, on the same axes, beside plain in grey. Each step "
        f"adds one mechanism to the step before. Lines are means over seeds at the middle strength of "
        f"sparsity{strength}, "
        "bands their 95 % intervals (often narrower than the line). Loss: the sum of all terms, which steps differ in, "
        "and dashed the reconstruction alone, which they share. Usage: the firing rates of a dictionary's features, "
        "most used first; where the line ends, the rest are dead."
    )
    return Section("Cumulative ablation, step by step", caption, [figure for figure in drawn if figure])


def total_loss(results: RunResults, setting: Setting) -> Curve | None:
    """The sum of the terms this setting logged."""
    terms = [curve for term in results.terms() if (curve := results.curve(setting, term, term=True))]
    return Curve(terms[0].steps, np.sum([curve.values for curve in terms], axis=0)) if terms else None


def usage(results: RunResults, setting: Setting) -> tuple[Band, Estimate]:
    """Firing rates by rank, as a band over seeds; x is the share of features used as much or more. And dead share."""
    rates = -np.sort(-np.nan_to_num(results.table(setting, "density")), axis=1)
    amount = rates.shape[1]
    dead = estimate((rates == 0).mean(1).tolist())
    return Band.over_seeds(100 * np.arange(1, amount + 1) / amount, rates), dead


def _losses(results: RunResults, ablation: Ablation) -> Figure | None:
    found = [total_loss(results, case.middle) for case in ablation.steps]
    totals = _bands(found)
    costs = [results.curve(case.middle, "reconstruction", term=True) for case in ablation.steps]
    dashed = [cost for cost in costs if cost] if all(costs) else []
    if not totals:
        return None

    def draw(axes: Axes, place: int) -> str:
        totals[place].draw(axes, COLOURS[0])
        if dashed:
            cost = dashed[place]
            axes.plot(cost.steps, cost.values.mean(0), "--", color=COLOURS[1], linewidth=1.4, zorder=4)
        return f"ends at {totals[place].mean[-1]:.3g}"

    figure, described = _panels(results, ablation, "Training curves: loss", draw, totals)
    _scale(figure, [*[band.mean for band in totals], *[cost.values.mean(0) for cost in dashed]])
    _name(figure, "training step", "cost per sample")
    handles = [_line(COLOURS[0], "-", "loss, this step"), _line(PALE, "-", "loss, plain")]
    key(figure, [*handles, *([_line(COLOURS[1], "--", "its reconstruction")] if dashed else [])])
    return Figure("training_curves", png(figure), f"Loss against training step, step by step: {described}.")


def _l0(results: RunResults, ablation: Ablation) -> Figure | None:
    found = _bands([results.curve(case.middle, "l0") for case in ablation.steps])
    if not found:
        return None
    levels = shared([case.middle for case in ablation.steps], "l0", "ceiling")[:1]

    def draw(axes: Axes, place: int) -> str:
        found[place].draw(axes, COLOURS[0])
        for value, _ in levels:
            axes.axhline(value, color=GREY, linestyle=":", linewidth=1.2)
        return f"ends at {found[place].mean[-1]:.3g}"

    figure, described = _panels(results, ablation, "Sparsity evolution: L0 while training", draw, found)
    _scale(figure, [band.mean for band in found])
    _name(figure, "training step", "L0 (features per sample)")
    handles = [_line(COLOURS[0], "-", "this step"), _line(PALE, "-", "plain")]
    key(figure, [*handles, *[_line(GREY, ":", "what truly fires") for _ in levels]])
    return Figure("sparsity_evolution", png(figure), f"L0 against training step, step by step: {described}.")


def _usage(results: RunResults, ablation: Ablation) -> Figure | None:
    if not results.has("density"):
        return None
    found = [usage(results, case.middle) for case in ablation.steps]
    bands = [band for band, _ in found]
    true = _planted(results, ablation.plain.middle)

    def draw(axes: Axes, place: int) -> str:
        axes.fill_between(true[0], true[1], color="#dcdcdc", linewidth=0, zorder=1)
        bands[place].draw(axes, COLOURS[0])
        words = f"dead {_percent(found[place][1])}"
        axes.text(0.97, 0.93, words, ha="right", va="top", fontsize=SMALLER, color=INK, transform=axes.transAxes)
        return words

    figure, described = _panels(results, ablation, "Feature usage: how often each feature fires", draw, bands)
    seen = np.concatenate([np.concatenate([band.mean for band in bands]), true[1]])
    make_log(figure.axes[0], "y", float(seen[seen > 0].min()), 1.0)  # above every rate, room for the words
    figure.axes[0].set_xlim(0, 100)
    _name(figure, "features, most used first (%)", "firing rate (share of samples, log)")
    handles = [_line(COLOURS[0], "-", "this step"), _line(PALE, "-", "plain")]
    true_line = Line2D([], [], color="#dcdcdc", linewidth=7, label="planted features")
    key(figure, [*handles, *([true_line] if true[0].size else [])])
    return Figure("feature_usage", png(figure), f"Firing rates of features by rank, step by step: {described}.")


def _planted(results: RunResults, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """The planted firing rates by rank, on the axis of the dictionary's features."""
    if not results.has_truth:
        return np.zeros(0), np.zeros(0)
    rates = -np.sort(-results.probabilities(setting))
    return 100 * np.arange(1, len(rates) + 1) / results.table(setting, "density").shape[1], rates


def _bands(curves: Sequence[Curve | None]) -> list[Band]:
    return [Band.over_seeds(one.steps, one.values) for one in curves if one] if all(curves) else []


def _panels(
    results: RunResults, ablation: Ablation, title: str, draw: Callable[[Axes, int], str], bands: Sequence[Band]
) -> tuple[MatplotlibFigure, str]:
    """A plot a step, plain's line in each; and what `draw` says of them."""
    figure, every = blank_panels(results.source, title, len(ablation.steps), PANEL)
    names = [ablation.step_title(case) for case in ablation.steps]
    size = SMALL if max(map(len, names)) <= 24 else SMALLER
    described: list[str] = []
    for place, (axes, name) in enumerate(zip(every, names, strict=True)):
        if place:
            axes.plot(bands[0].x, bands[0].mean, color=PALE, linewidth=1.4, zorder=2)
        described.append(f"{name} {draw(axes, place)}")
        axes.set_title(plain(name), fontsize=size, loc="left", color=INK)
    return figure, "; ".join(described)


def _name(figure: MatplotlibFigure, x: str, y: str) -> None:
    """One name for all y axes; the x axes at the foot of both columns have theirs."""
    log = " (log)" if figure.axes[0].get_yscale() == "log" and "log" not in y else ""
    for axes in [axes for axes in figure.axes if axes.axison][-2:]:
        axes.set_xlabel(x, fontsize=SMALL - 0.7)
    figure.supylabel(f"{y}{log}", fontsize=SMALL)


def _scale(figure: MatplotlibFigure, lines: Sequence[np.ndarray]) -> None:
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
