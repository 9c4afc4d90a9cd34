"""Figures of training: every loss term and whatever else was logged, against the step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.reports.canvas import (
    Figure,
    Section,
    Style,
    blank,
    handle,
    key,
    left_out,
    level,
    make_log,
    name_axes,
    png,
    setting_style,
    shared,
    short,
)
from unbraid.reports.run_results import Curve, RunResults, Setting

FEW_POINTS = 3
"""A curve of so few points is drawn with markers, or nothing would be seen."""
TERMS = "the terms of the loss that training minimizes"
LONGEST = 68
"""Letters of a setting that there is room for under a plot."""


@dataclass(frozen=True)
class _Quantity:
    """Something that was logged: its key in the log, its title and unit on a figure, and what it shows."""

    key: str
    title: str
    unit: str
    shows: str
    term: bool = False


QUANTITIES = (
    _Quantity("l0", "L0 on the training batch", "features per sample", "how many features fire"),
    _Quantity("mmcs", "MMCS while training", "MMCS (1 is perfect)", "how much of the planted truth is found"),
    _Quantity("perplexity", "Perplexity on the training batch", "perplexity", "the perplexity of the training batch"),
    _Quantity("gradient_norm", "Gradient norm", "norm before clipping", "the norm of the gradient"),
)
"""What may be logged beside the terms of the loss."""


def curves(results: RunResults, style: Callable[[RunResults, Setting], Style] = setting_style) -> Section:
    """A figure for each thing that was logged."""
    settings = results.drawn
    terms = [_Quantity(term, f"Loss term: {term}", "cost per sample", TERMS, True) for term in results.terms()]
    drawn = [(quantity, _figure(results, settings, quantity, style)) for quantity in (*terms, *QUANTITIES)]
    shown = list(dict.fromkeys(quantity.shows for quantity, figure in drawn if figure))
    untrained = len(settings) - sum(any(results.curve(one, term.key, True) for term in terms) for one in settings)
    baselines = f" Baselines are not trained by steps: {untrained} of these settings." if untrained and shown else ""
    caption = (
        f"Against the training step: {'; '.join(shown)}. Thin lines: replicates. Bold line: their "
        f"mean.{baselines}{left_out(results, settings)}"
    )
    return Section("Training", caption, [figure for _, figure in drawn if figure])


def _figure(
    results: RunResults,
    settings: list[Setting],
    quantity: _Quantity,
    style: Callable[[RunResults, Setting], Style],
) -> Figure | None:
    drawn = [(one, curve) for one in settings if (curve := results.curve(one, quantity.key, quantity.term))]
    if not drawn:
        return None
    figure, axes = blank(results.source, height=3.3 + 0.2 * len(settings))
    handles = [_draw(axes, style(results, setting), setting.label, curve) for setting, curve in drawn]
    levels = [] if quantity.term else _levels(axes, settings, quantity)
    seen = [curve.values.ravel() for _, curve in drawn] + [np.atleast_1d(line.get_ydata())[:1] for line in levels]
    _scale(axes, np.concatenate(seen), quantity)
    axes.set_xlim(left=0)
    log = " (log)" if axes.get_yscale() == "log" else ""
    name_axes(axes, quantity.title, "training step", f"{quantity.unit}{log}")
    key(figure, handles + levels)
    ends = "; ".join(f"{setting.label} ends at {curve.values[:, -1].mean():.3g}" for setting, curve in drawn)
    name = f"loss-{quantity.key}" if quantity.term else f"curve-{quantity.key}"
    return Figure(name, png(figure), f"{quantity.title} against training step: {ends}.")


def _draw(axes: Axes, drawn: Style, label: str, curve: Curve) -> Line2D:
    few = len(curve.steps) <= FEW_POINTS
    if len(curve.values) > 1:
        axes.plot(curve.steps, curve.values.T, "." if few else "-", color=drawn.colour, linewidth=0.7, alpha=0.45)
    (line,) = axes.plot(curve.steps, curve.values.mean(0), color=drawn.colour, linestyle=drawn.dashes, linewidth=2.2)
    line.set_marker(drawn.marker if few else "")
    return handle(drawn, short(label, LONGEST), marker=few)


def _levels(axes: Axes, settings: list[Setting], quantity: _Quantity) -> list[Line2D]:
    """Chance and ceiling; for L0 the ceiling is how many features truly fire."""
    found = shared(settings, quantity.key, "chance") + shared(settings, quantity.key, "ceiling")
    if quantity.key == "l0":
        found = [(value, name.replace("ceiling", "what truly fires")) for value, name in found]
    lines = [level(axes, value, name, ":" if "chance" in name else "-") for value, name in found]
    return [line for line in lines if line]


def _scale(axes: Axes, values: np.ndarray, quantity: _Quantity) -> None:
    """MMCS from 0 to 1; anything positive over more than a factor of 20 on a log scale."""
    kept = values[np.isfinite(values)]
    low, high = (float(kept.min()), float(kept.max())) if kept.size else (0.0, 1.0)
    if quantity.key == "mmcs" and not quantity.term:
        axes.set_ylim(min(0.0, low), 1.04)
    elif low > 0 and high > 20 * low:
        make_log(axes, "y", low, high)
    elif low >= 0:
        axes.set_ylim(0, 1.08 * high if high > 0 else 1)
