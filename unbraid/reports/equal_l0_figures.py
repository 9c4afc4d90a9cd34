"""Figures of a score at one L0: a bar a case, interpolated along its path, never beyond its ends."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.typing import LineStyleType

from unbraid.metrics.intervals import Estimate, estimate
from unbraid.reports.ablation import Ablation, Case, read_ablation, shared_l0
from unbraid.reports.canvas import (
    COLOURS,
    GREY,
    INK,
    SMALL,
    SMALLER,
    Figure,
    Section,
    blank,
    key,
    name_axes,
    plain,
    png,
    short,
)
from unbraid.reports.run_results import RunResults, finite
from unbraid.reports.score_figures import CHANCE
from unbraid.reports.words import describe_metric, describe_metric_of, interval, number

WARNING = (
    "SAEBench warns: absorption needs a language model of at least 1B parameters and a dictionary of at least 16k "
    "features; an undertrained dictionary, or a small one, scores deceptively low. Compare only at equal L0."
)
PLAIN, OTHER = COLOURS[4], COLOURS[0]


@dataclass(frozen=True)
class Bar:
    """A case's score at an L0; None where that L0 is not on the paths of all its seeds."""

    title: str
    mean: Estimate | None
    chance: float | None
    ceiling: float | None


def bars(ablation: Ablation, cases: Sequence[Case], metric: str, l0: float) -> list[Bar]:
    """Each case's score at this L0, over seeds."""
    found: list[Bar] = []
    for case in cases:
        values = [path.at(l0) for path in case.paths(metric).values()]
        known = values if len(finite(values)) == len(values) else []
        scores = [one.scores[metric] for one in case.settings if metric in one.scores]
        chance, ceiling = ([getattr(score, side) for score in scores] for side in ("chance", "ceiling"))
        found.append(Bar(ablation.title(case), estimate(known) if known else None, _mean(chance), _mean(ceiling)))
    return found


def correlations(results: RunResults) -> Section:
    """How much the most alike features of each step are correlated (feature_correlations of the mechanisms study)."""
    ablation = read_ablation(results)
    groups = {"each step adds one": ablation.steps} if ablation and ablation.steps else {}
    caption = (
        "How strongly the features that fire most alike are correlated, for every step of the cumulative ablation. "
        + _how_to_read("the truth itself, whose features are correlated too where a world plants it")
    )
    return Section(
        "Feature correlations", caption, _figures(results, ablation, groups, "correlation", "feature_correlations")
    )


def absorbed(results: RunResults) -> Section:
    """How often children absorb their parents, in every case."""
    ablation = read_ablation(results)
    groups = ablation.groups() if ablation else {}
    caption = (
        "How often a child's match stands in for its parent's, which is silent; lower is better. "
        + _how_to_read("the truth itself, 0")
        + f" {WARNING}"
    )
    return Section("Absorption at equal L0", caption, _figures(results, ablation, groups, "absorption", "absorption"))


def _how_to_read(ceiling: str) -> str:
    return (
        "Every case is read at the same L0, the one most cases have on the paths of all their seeds, between two of "
        "its strengths of sparsity; a case whose paths do not reach it has no bar. Bar: mean over seeds, with its 95 % "
        "interval. Dashed tick: chance, a random dictionary of the same size (at whatever L0 it has). Solid tick: the "
        f"ceiling, {ceiling}. Plain is in another colour."
    )


def _figures(
    results: RunResults, ablation: Ablation | None, groups: dict[str, list[Case]], metric: str, name: str
) -> list[Figure]:
    if ablation is None:
        return []
    l0 = shared_l0(list(ablation.cases.values()), metric, ablation.plain)
    if l0 is None:
        return []
    several = len(groups) > 1
    return [
        _figure(results, metric, f"{name}-{place}" if several else name, title, bars(ablation, cases, metric, l0), l0)
        for place, (title, cases) in enumerate(groups.items(), 1)
    ]


def _figure(results: RunResults, metric: str, name: str, title: str, rows: Sequence[Bar], l0: float) -> Figure:
    figure, axes = blank(results.source, height=1.75 + 0.42 * len(rows))
    across = axes.get_yaxis_transform()
    for row, bar in enumerate(rows):
        size = SMALL if len(bar.title) <= 34 else SMALLER
        axes.text(0, 0.36 - row, plain(short(bar.title)), fontsize=size, color=INK, va="center", transform=across)
        right = _said(metric, bar)
        axes.text(1, 0.36 - row, right, fontsize=SMALLER, color=INK, va="center", ha="right", transform=across)
        draw_bar(axes, -float(row), bar, OTHER if row else PLAIN)
    axes.set(ylim=(0.5 - len(rows), 0.62), yticks=[])
    axes.margins(x=0.05)
    axes.set_xlim(left=-0.02 * axes.get_xlim()[1])
    heading = describe_metric(metric).label
    better = describe_metric_of(metric, results.settings).direction
    unit = f" ({better})" if better else ""
    name_axes(axes, f"{heading} at L0 {l0:.3g}: {title}", f"{heading} at L0 {l0:.3g}{unit}", "")
    key(figure, _key(rows))
    described = "; ".join(f"{bar.title} {_said(metric, bar)}" for bar in rows)
    return Figure(name, png(figure), f"Bars of {heading} at L0 {l0:.3g}, {title}: {described}.")


def draw_bar(axes: Axes, y: float, bar: Bar, colour: str) -> None:
    if bar.mean is not None:
        axes.barh([y - 0.05], [bar.mean.value], height=0.3, color=colour, alpha=0.55, zorder=2)
        if bar.mean.interval is not None:
            axes.plot(bar.mean.interval, [y - 0.05] * 2, color=INK, linewidth=1.8, zorder=4)
    marks: list[tuple[float | None, LineStyleType]] = [(bar.chance, CHANCE), (bar.ceiling, "-")]
    for value, style in marks:
        if value is not None:
            axes.plot([value] * 2, [y - 0.24, y + 0.13], color=GREY, linestyle=style, linewidth=2.2, zorder=3)


def _key(rows: Sequence[Bar]) -> list[Line2D]:
    handles = [Line2D([], [], color=INK, linewidth=1.8, label="95 % interval over seeds")]
    if any(bar.chance is not None for bar in rows):
        handles.append(Line2D([], [], color=GREY, linestyle=CHANCE, linewidth=2.2, label="chance"))
    if any(bar.ceiling is not None for bar in rows):
        handles.append(Line2D([], [], color=GREY, linewidth=2.2, label="ceiling"))
    return handles


def _said(metric: str, bar: Bar) -> str:
    if bar.mean is None:
        return "not on its path"
    bounds = "" if bar.mean.interval is None else f" {interval(metric, bar.mean.interval)}"
    return f"{number(metric, bar.mean.value)}{bounds}"


def _mean(values: Sequence[float | None]) -> float | None:
    known = finite(values)
    return sum(known) / len(known) if known else None
