"""Figures of what sparsity is paid with: L0, explained variance and recovery along the paths of all cases."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.reports.ablation import ALONE, PUBLISHED, Ablation, Case, read_ablation, shared_l0
from unbraid.reports.canvas import (
    GREY,
    HEIGHT,
    INK,
    Figure,
    Section,
    Style,
    blank,
    handle,
    key,
    level,
    make_log,
    name_axes,
    png,
    shared,
)
from unbraid.reports.methods import method_style
from unbraid.reports.run_results import RunResults, Score
from unbraid.reports.words import describe_metric, describe_metric_of, number

PAIRS = (
    *(("l0", "explained_variance"), ("l0", "recovered"), ("explained_variance", "recovered")),
    *(("l0", "loss_recovered"), ("l0", "probe_1")),
)
PALE = "#c4c4c4"
BEST = 2
"""How many cases are highlighted because they recover most."""

FARTHEST = 10
"""How far below the middle L0 the axis goes."""

Points = list[tuple[Score, Score]]


def highlighted(ablation: Ablation) -> list[Case]:
    """Plain, the first mechanism, all of them, and those that recover most at the L0 that most cases have.

    Without a truth to recover, those that explain most variance.
    """
    every = list(ablation.cases.values())
    first = ablation.steps[1:2] or [case for case in every if case.name.startswith(ALONE)][:1]
    metric = "recovered" if any("recovered" in one.scores for one in ablation.plain.settings) else "explained_variance"
    l0 = shared_l0(every, metric, ablation.plain)
    found = {case.name: np.mean([path.at(l0) for path in case.paths(metric).values()]) for case in every if l0}
    known = [case for case in every if np.isfinite(found.get(case.name, np.nan))]
    ranked = sorted(known, key=lambda case: -found[case.name])
    chosen = distinct([ablation.plain, *first, *([ablation.whole] if ablation.whole else [])])
    return distinct([*chosen, *ranked])[: len(chosen) + BEST]


def distinct(cases: Sequence[Case]) -> list[Case]:
    """Without those that are another by a second name."""
    kept: dict[tuple[frozenset[str], str], Case] = {}
    for case in cases:
        own = case.name if case.name.startswith(PUBLISHED) else ""
        kept.setdefault((case.mechanisms, own), case)
    return list(kept.values())


def pareto(results: RunResults) -> Section:
    """A figure for every two scores the run has, a line a case along its path."""
    ablation = read_ablation(results)
    drawn = [_figure(results, ablation, x, y) for x, y in PAIRS] if ablation else []
    caption = (
        "Each line is a case along its strengths of sparsity, each point a mean over seeds with 95 % intervals both "
        "ways (often narrower than the marker). In colour: plain, the first mechanism, all of them, and two more that "
        "recover most (without a truth: explain most) at the L0 that most cases have; in grey the others, without "
        "intervals. Black dots: the front, the points that no other of any case beats on both axes; picked from noisy "
        "means, it flatters a little. Up is better; so is left for L0. A case that fires less than a tenth "
        "of the middle L0 is beyond the left edge. Chance is drawn where it is near, else named in the legend."
    )
    return Section("Pareto front: what sparsity is paid with", caption, [figure for figure in drawn if figure])


def points(case: Case, x: str, y: str) -> Points:
    """Both scores at each strength of sparsity, where it has them."""
    both = [(one.scores[x], one.scores[y]) for one in case.settings if x in one.scores and y in one.scores]
    return [(across, up) for across, up in both if across.value is not None and up.value is not None]


def front(found: Sequence[tuple[float, float]], lower: bool) -> list[tuple[float, float]]:
    """The points that none is better than on both axes, from left to right; x is better lower, or higher."""
    sign = 1 if lower else -1
    kept: list[tuple[float, float]] = []
    for x, y in sorted(found, key=lambda point: (sign * point[0], -point[1])):
        if not kept or y > kept[-1][1]:
            kept.append((x, y))
    return sorted(kept)


def _figure(results: RunResults, ablation: Ablation, x: str, y: str) -> Figure | None:
    lines = {case.name: each for case in ablation.cases.values() if (each := points(case, x, y))}
    if not lines:
        return None
    chosen = [case for case in highlighted(ablation) if case.name in lines]
    figure, axes = blank(results.source, height=HEIGHT + 1.1 + 0.2 * len(chosen))
    for name, each in lines.items():
        if name not in [case.name for case in chosen]:
            axes.plot(*_means(each), color=PALE, linewidth=1, marker="o", markersize=2.5, zorder=2)
    handles = [_draw(axes, method_style(at), ablation.title(case), lines[case.name]) for at, case in enumerate(chosen)]
    every = [pair for each in lines.values() for pair in zip(*_means(each), strict=True)]
    best = np.array(front(every, lower=x == "l0"))
    axes.plot(best[:, 0], best[:, 1], color=INK, linewidth=1, linestyle=(0, (1, 1)), zorder=5)
    handles += _others(axes, ablation, x, y, len(chosen) < len(lines))
    if x == "l0":
        make_log(axes, "x", _least_shown([across for across, _ in every]), max(across for across, _ in every))
    log = ", log" if x == "l0" else ""
    title = f"{describe_metric(y).label} against {describe_metric(x).label}"
    across, up = (describe_metric_of(metric, results.settings) for metric in (x, y))
    unit = "features per sample" if x == "l0" else across.direction
    name_axes(axes, title, f"{across.label} ({unit}{log})", f"{up.label} ({up.direction})")
    key(figure, handles)
    described = "; ".join(_described(ablation.title(case), lines[case.name], x, y) for case in chosen)
    return Figure(f"pareto-{x}-{y}", png(figure), f"{title}, along the paths of {len(lines)} cases: {described}.")


def _least_shown(l0: Sequence[float]) -> float:
    """The least L0, but no less than a tenth of the middle one: what hardly fires would squeeze all the others."""
    return max(min(l0), float(np.median(l0)) / FARTHEST)


def _others(axes: Axes, ablation: Ablation, x: str, y: str, grey: bool) -> list[Line2D]:
    """The legend of what is no highlighted case; and chance and what truly fires, drawn."""
    settings = [setting for case in ablation.cases.values() for setting in case.settings]
    found = [Line2D([], [], color=PALE, marker="o", markersize=3, label="other cases")] if grey else []
    found.append(Line2D([], [], color=INK, linewidth=1, linestyle=(0, (1, 1)), label="front"))
    low, high = axes.get_ylim()
    for value, name in shared(settings, y, "chance"):
        near = low - (high - low) <= value <= high
        line = level(axes, value, name, ":") if near else Line2D([], [], linestyle="", label=_far(y, name, value, low))
        found += [line] if line else []
    if x == "l0" and (true := shared(settings, "l0", "ceiling")):
        found.append(axes.axvline(true[0][0], color=GREY, linestyle="--", linewidth=1.2, label="what truly fires"))
    return found


def _far(metric: str, name: str, value: float, low: float) -> str:
    return f"{name} {number(metric, value)}, {'below' if value < low else 'above'}"


def _means(each: Points) -> tuple[list[float], list[float]]:
    return [across.value or 0.0 for across, _ in each], [up.value or 0.0 for _, up in each]


def _draw(axes: Axes, drawn: Style, label: str, each: Points) -> Line2D:
    x, y = _means(each)
    axes.plot(
        x, y, color=drawn.colour, linestyle=drawn.dashes, marker=drawn.marker, markersize=5, linewidth=2, zorder=4
    )
    for at, height, (across, up) in zip(x, y, each, strict=True):
        if across.interval is not None:
            axes.plot(across.interval, [height] * 2, color=drawn.colour, linewidth=2.4, alpha=0.5, zorder=3)
        if up.interval is not None:
            axes.plot([at] * 2, up.interval, color=drawn.colour, linewidth=2.4, alpha=0.5, zorder=3)
    return handle(drawn, label, marker=True)


def _described(title: str, each: Points, x: str, y: str) -> str:
    said = [f"{number(y, up.value)} at {number(x, across.value)}" for across, up in each]
    return f"{title} {', '.join(said)}"
