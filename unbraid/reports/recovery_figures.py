"""Figures of recovery: how well each true feature was found, against how often it fires."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from unbraid.metrics.catalog import FOUND
from unbraid.reports.canvas import (
    COLOURS,
    HEIGHT,
    Figure,
    Section,
    Style,
    blank,
    key,
    left_out,
    level,
    make_log,
    name_axes,
    png,
    setting_style,
    short,
)
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.words import number

PALE = "#a0a0a0"


@dataclass(frozen=True)
class _Recovery:
    """One setting's best cosines, by true feature, in the order of x."""

    x: np.ndarray
    cosines: np.ndarray
    """Members × true features."""
    ranked: bool
    """All features fire about equally often: x is their rank, best found first."""

    @classmethod
    def of(cls, rates: np.ndarray, found: np.ndarray) -> "_Recovery":
        if np.ptp(np.log(rates)) < 0.1:
            return cls(np.arange(1, len(rates) + 1), found[:, np.argsort(-found.mean(0))], True)
        order = np.argsort(rates)
        return cls(rates[order], found[:, order], False)

    @property
    def axis_label(self) -> str:
        return "true feature, best found first" if self.ranked else "firing probability of the true feature (log)"

    def median(self) -> tuple[np.ndarray, np.ndarray]:
        """The running median of the mean over members."""
        window = min(len(self.x), max(9, len(self.x) // 16))
        view = np.lib.stride_tricks.sliding_window_view
        return np.median(view(self.x, window), axis=1), np.median(view(self.cosines.mean(0), window), axis=1)


def recovery(results: RunResults) -> Section:
    """Each true feature's best cosine against how often it fires, a figure a setting."""
    if not results.has("best_cosine"):
        return Section("", "", [])
    settings = results.panels
    found = [_Recovery.of(results.probabilities(s), results.table(s, "best_cosine")) for s in settings]
    figures = [_figure(results, settings, found, place) for place in range(len(settings))]
    where = "how often it fires (x, probability per sample, log scale)"
    if found[0].ranked:
        where = "its rank (x, best found first; all fire about equally often)"
    caption = (
        f"Each dot is a true feature: {where} and the cosine of the learned feature most like it (y, 1 is perfect), "
        "mean over replicates; the vertical bar runs from the worst replicate to the best. Black line: the running "
        f"median; grey lines: that of the other settings drawn.{left_out(results, settings)}"
    )
    return Section("Recovery of every true feature", caption, figures)


def draw_recovery(probabilities: ArrayLike, best_cosine: ArrayLike, chance: float | None = None) -> MatplotlibFigure:
    """Draw how well each planted feature was recovered, against how often it fires.

    Parameters
    ----------
    probabilities : array, shape (n,)
        The share of samples in which each planted feature fires: `world.probabilities`.
    best_cosine : array, shape (m, n)
        The cosine of the learned feature nearest to each planted one: `scores.tables["best_cosine"]`.
    chance : float, optional
        Drawn as a line: `scores.chance["mmcs"]`.

    Returns
    -------
    matplotlib.figure.Figure
        Shown by a notebook; `figure.savefig("recovery.png")` saves it.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Superposition(dimensions=8, n_features=16)
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=16), world.dimensions, seeds=[0, 1])
    >>> scores = ub.score(stack, world, samples=512)
    >>> figure = ub.draw_recovery(world.probabilities, scores.tables["best_cosine"], scores.chance["mmcs"])
    >>> len(figure.axes)
    1
    """
    this = _Recovery.of(np.asarray(probabilities, dtype=float), np.asarray(best_cosine, dtype=float))
    figure, axes = blank("unbraid", height=HEIGHT + 0.2)
    key(figure, _draw(axes, this, Style(COLOURS[0], "-", "o"), "Recovery of every true feature", chance, []))
    return figure


def _figure(results: RunResults, settings: list[Setting], found: list[_Recovery], place: int) -> Figure:
    setting, this = settings[place], found[place]
    figure, axes = blank(results.source, height=HEIGHT + 0.2)
    others = [other for other in found if other is not this and other.ranked == this.ranked]
    chance = setting.scores["mmcs"].chance
    key(figure, _draw(axes, this, setting_style(results, setting), short(setting.label), chance, others))
    alt = (
        f"{setting.label}: best cosine of each of {len(this.x)} true features, against {this.axis_label}; mean "
        f"{number('mmcs', setting.value('mmcs'))}, {(this.cosines.mean(0) >= FOUND).mean():.0%} at {FOUND} or above."
    )
    return Figure(f"recovery-{place + 1}", png(figure), alt)


def _draw(
    axes: Axes, this: _Recovery, drawn: Style, title: str, chance: float | None, others: list[_Recovery]
) -> list[Line2D]:
    """Dots, bars and the running median, over those of other settings; gives the legend's lines."""
    x = this.x
    for other in others:
        axes.plot(*other.median(), color=PALE, linewidth=1.4, zorder=2)
    if len(this.cosines) > 1:
        low, high = this.cosines.min(0), this.cosines.max(0)
        axes.vlines(x, low, high, color=drawn.colour, linewidth=0.7, alpha=0.35, zorder=1)
    mean = this.cosines.mean(0)
    axes.plot(x, mean, drawn.marker, color=drawn.colour, markersize=3.2, alpha=0.6, markeredgewidth=0, zorder=3)
    axes.plot(*this.median(), color="black", linewidth=2, zorder=4)
    if not this.ranked:
        make_log(axes, "x", x[0], x[-1])
    axes.set_ylim(min(0.0, float(this.cosines.min())), 1.04)
    name_axes(axes, title, this.axis_label, "best cosine, mean")
    lines = [Line2D([], [], color="black", linewidth=2, label="running median")]
    lines += [Line2D([], [], color=PALE, linewidth=1.4, label="other settings")] if others else []
    levels = [level(axes, FOUND, f"{FOUND}: counts as found", "--"), level(axes, chance, "chance", ":")]
    return lines + [line for line in levels if line]
