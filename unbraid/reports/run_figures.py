"""Figures of a run as a whole: the scores of every setting, and how training went."""

import numpy as np
from matplotlib.axes import Axes

from unbraid.reports.canvas import (
    COLOURS,
    GREY,
    INK,
    MARKERS,
    MOST_LINES,
    SMALL,
    Picture,
    Plate,
    blank,
    handle,
    key,
    level,
    look,
    name_axes,
    plain,
    png,
    shared,
    short,
)
from unbraid.reports.findings import Curve, Findings, Score, Setting, finite
from unbraid.reports.words import PLOTTED, estimate, wording

MOST_ROWS = 24
FEW_POINTS = 3


def scores(findings: Findings) -> Plate:
    """A row a setting: every replicate, the mean with its interval, chance and ceiling."""
    settings = findings.some(MOST_ROWS)
    kept = [metric for metric in PLOTTED if any(metric in setting.scores for setting in settings)]
    caption = (
        "Each row is a setting. Small dots: one per replicate. Large marker: their mean, with its 95 % interval as a bar (often "
        "narrower than the marker). Dashed tick: chance, a random dictionary of the same size. Solid tick: the ceiling, an oracle "
        f"of the same size. The score has no unit; 1 is perfect.{_left_out(findings, settings)}"
    )
    return Plate(
        "Scores against chance and ceiling", caption, [_score_picture(findings, settings, metric) for metric in kept]
    )


def curves(findings: Findings) -> Plate:
    """Every loss term, L0 and MMCS against the training step."""
    settings = findings.some(MOST_LINES)
    pictures = [
        _curve_picture(findings, settings, term, f"Loss term: {term}", "cost per sample", True)
        for term in findings.terms()
    ]
    pictures.append(
        _curve_picture(findings, settings, "l0", "L0 on the training batch", "features firing per sample", False)
    )
    pictures.append(_curve_picture(findings, settings, "mmcs", "MMCS while training", "MMCS (1 is perfect)", False))
    caption = (
        "Against the training step: what training minimises, how many features fire, and how much of the planted truth is found. "
        f"Thin lines: replicates. Bold line: their mean.{_left_out(findings, settings)}"
    )
    return Plate("Training", caption, [picture for picture in pictures if picture])


def _score_picture(findings: Findings, settings: list[Setting], metric: str) -> Picture:
    figure, axes = blank(findings, height=1.25 + 0.52 * len(settings))
    rows = [(setting, setting.scores[metric]) for setting in settings if metric in setting.scores]
    for row, (setting, score) in enumerate(rows):
        _score_row(axes, -float(row), row, setting, score, metric)
    lowest = min((value for _, score in rows for value in finite(score.members)), default=0.0)
    axes.set_xlim(min(-0.02, lowest * 1.1), 1.03)
    axes.set_ylim(0.45 - len(rows), 0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    words = wording(metric)
    name_axes(axes, words.heading, f"{words.heading} ({words.better})", "")
    told = "; ".join(f"{setting.label} {estimate(metric, score)}" for setting, score in rows)
    return Picture(f"score-{metric}", png(figure), f"Dot plot of {words.heading}: {told}.")


def _score_row(axes: Axes, y: float, place: int, setting: Setting, score: Score, metric: str) -> None:
    colour = COLOURS[place % len(COLOURS)]
    axes.text(
        0,
        y + 0.36,
        plain(short(setting.label)),
        fontsize=SMALL,
        color=INK,
        va="center",
        transform=axes.get_yaxis_transform(),
    )
    axes.text(
        1,
        y + 0.36,
        plain(estimate(metric, score)),
        fontsize=SMALL,
        color=INK,
        va="center",
        ha="right",
        transform=axes.get_yaxis_transform(),
    )
    for value, style in ((score.chance, (0, (2, 1.2))), (score.ceiling, "-")):
        if value is not None:
            axes.plot([value, value], [y - 0.18, y + 0.18], color=GREY, linestyle=style, linewidth=2)
    members = finite(score.members)
    spread = np.linspace(-0.11, 0.11, len(members)) if len(members) > 1 else [0.0]
    axes.plot(
        members,
        y + np.asarray(spread[: len(members)]),
        "o",
        color=colour,
        markersize=3.2,
        alpha=0.55,
        markeredgewidth=0,
    )
    if score.interval is not None:
        axes.plot(score.interval, [y, y], color=colour, linewidth=2.6, solid_capstyle="butt")
    if score.value is not None:
        axes.plot(
            [score.value],
            [y],
            MARKERS[place % len(MARKERS)],
            color=colour,
            markersize=8,
            markeredgecolor="white",
            markeredgewidth=0.8,
        )


def _curve_picture(
    findings: Findings, settings: list[Setting], name: str, title: str, unit: str, term: bool
) -> Picture | None:
    found = [(setting, curve) for setting in settings if (curve := findings.curve(setting, name, term))]
    if not found:
        return None
    figure, axes = blank(findings, height=3.3 + 0.2 * len(settings))
    handles = [_draw_curve(axes, place, setting, curve) for place, (setting, curve) in enumerate(found)]
    if name in ("mmcs", "l0") and not term:
        levels = shared(settings, name, "chance") + shared(settings, name, "ceiling")
        lines = [
            level(axes, value, _level_name(name, which), ":" if "chance" in which else "-") for value, which in levels
        ]
        handles += [line for line in lines if line]
    values = np.concatenate([curve.values.ravel() for _, curve in found])
    _scale(axes, values, name if not term else "")
    name_axes(axes, title, "training step", unit + (", log scale" if axes.get_yscale() == "log" else ""))
    key(figure, handles)
    ends = "; ".join(f"{setting.label} ends at {curve.values[:, -1].mean():.3g}" for setting, curve in found)
    return Picture(f"curve-{name}", png(figure), f"{title} against training step: {ends}.")


def _draw_curve(axes: Axes, place: int, setting: Setting, curve: Curve):
    colour, style = look(place)
    few = len(curve.steps) <= FEW_POINTS
    if len(curve.values) > 1:
        axes.plot(
            curve.steps, curve.values.T, color=colour, linewidth=0.7, alpha=0.4, marker="." if few else "", markersize=4
        )
    marker = MARKERS[place % len(MARKERS)] if few else ""
    axes.plot(curve.steps, curve.values.mean(0), color=colour, linestyle=style, linewidth=2.2, marker=marker, zorder=3)
    return handle(place, short(setting.label), marker=few)


def _scale(axes: Axes, values: np.ndarray, name: str) -> None:
    """MMCS from 0 to 1; anything positive over more than a factor of 20 on a log scale."""
    kept = values[np.isfinite(values)]
    if name == "mmcs":
        axes.set_ylim(min(0.0, kept.min(initial=0.0)), 1.04)
    elif kept.size and kept.min() > 0 and kept.max() > 20 * kept.min():
        axes.set_yscale("log")
    elif kept.size and kept.min() >= 0:
        axes.set_ylim(bottom=0)


def _level_name(name: str, which: str) -> str:
    return f"{which} (what truly fires)" if name == "l0" else which


def _left_out(findings: Findings, settings: list[Setting]) -> str:
    """Say when not every setting is drawn."""
    if len(settings) == len(findings.settings):
        return ""
    return f" Drawn: {len(settings)} of the {len(findings.settings)} settings, spread evenly from the highest MMCS to the lowest; the table has all."
