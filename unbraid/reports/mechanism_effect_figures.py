"""Figures of what each mechanism adds: alone and combined with the others, at equal L0 where the paths allow it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from unbraid.metrics.intervals import Difference, compare, paired_difference
from unbraid.reports import markup
from unbraid.reports.ablation import Ablation, Addition, Case, in_words, read_ablation
from unbraid.reports.canvas import (
    CLEAR,
    COLOURS,
    GREY,
    INK,
    SIGNS,
    SMALL,
    SMALLER,
    Figure,
    Section,
    blank,
    key,
    name_axes,
    png,
)
from unbraid.reports.markup import Group
from unbraid.reports.run_results import RunResults
from unbraid.reports.words import MISSING, describe_metric, describe_metric_of, interval, number

SHOWN = (
    *("recovered", "explained_variance", "dead", "redundancy", "correlation", "absorption"),
    *("loss_recovered", "probe_1", "probe_5"),
)
STYLES = {"alone": (COLOURS[0], "o", 0.05), "combined": (COLOURS[1], "s", -0.2)}
"""Colour, marker, and how far above the middle of a row."""
ALONE = 20


@dataclass(frozen=True)
class Effect:
    """What adding a mechanism changes in a score: at equal L0, or else at equal strength of sparsity."""

    addition: Addition
    difference: Difference
    l0: tuple[float, float] | None
    """Between which L0; None where they share none."""

    @property
    def matched(self) -> bool:
        return self.l0 is not None


def effects(ablation: Ablation, metric: str) -> list[Effect]:
    """Every addition that both cases have this score for."""
    found: list[Effect] = []
    for addition in ablation.additions():
        ours, reference = addition.ours, addition.reference
        at_equal = compare(ours.paths(metric), reference.paths(metric))
        if at_equal.difference:
            found.append(Effect(addition, at_equal.difference, (at_equal.low, at_equal.high)))
            continue
        difference = paired_difference(_means(ours, metric), _means(reference, metric))
        found += [Effect(addition, difference, None)] if difference.pairs else []
    return found


def additions(results: RunResults) -> Section:
    """A forest a score: a row a mechanism, with its difference alone and combined."""
    ablation = read_ablation(results)
    found = {metric: effects(ablation, metric) for metric in SHOWN} if ablation and ablation.additions() else {}
    figures = [_figure(results, ablation, metric, each) for metric, each in found.items() if ablation and each]
    amount = sum(len(each) for each in found.values())
    luck = f" Of {amount} intervals about {amount / ALONE:.0f} leave out 0 by luck alone." if amount >= ALONE else ""
    caption = (
        "Each row is a mechanism: the score with it minus the score without it, paired by seed, with its 95 % "
        "interval. Alone: against the dictionary that has everything else it has, mostly plain. Combined: all "
        "mechanisms against all but it. Filled: at equal L0, the mean over the L0 that both have on their paths; "
        "hollow: no L0 is shared, so at equal strength of sparsity, and a difference may be one of L0. ▲ higher and "
        f"▼ lower where the interval leaves out 0 and there are at least five pairs, else ○.{luck}{_remarks(ablation)}"
    )
    return Section("What each mechanism adds", caption, figures, _numbers(found) if figures else "")


def _numbers(found: Mapping[str, Sequence[Effect]]) -> str:
    """Every difference as a table, folded away."""
    groups = [
        Group([_row(metric, one) for one in each], describe_metric(metric).label) for metric, each in found.items()
    ]
    head = ("mechanism", "difference", "95 % interval", "pairs", "between L0", "verdict")
    return markup.fold("The same in numbers", markup.table("What each mechanism adds", head, groups, words=1))


def _row(metric: str, one: Effect) -> list[str]:
    mean = one.difference.estimate
    return [
        f"{in_words(one.addition.mechanism)}, {one.addition.where}",
        number(metric, mean.value, True),
        interval(metric, mean.interval, True),
        str(one.difference.pairs),
        MISSING if one.l0 is None else "{:.3g} and {:.3g}".format(*one.l0),
        f"{SIGNS[one.difference.verdict]} {one.difference.verdict}",
    ]


def _means(case: Case, metric: str) -> dict[str, float]:
    """Each replicate's mean over the strengths of sparsity."""
    found: dict[str, list[float]] = {}
    for setting in case.settings:
        members = setting.scores[metric].members if metric in setting.scores else []
        for replicate, value in zip(setting.replicates, members, strict=False):
            found.setdefault(replicate, []).append(float("nan") if value is None else value)
    return {replicate: sum(each) / len(each) for replicate, each in found.items() if sum(each) == sum(each)}


def _remarks(ablation: Ablation | None) -> str:
    """Which comparisons change more than the mechanism, or need others when alone."""
    if ablation is None:
        return ""
    said: list[str] = []
    for one in ablation.additions():
        name, base = in_words(one.mechanism), ablation.plain.mechanisms | {one.mechanism}
        if one.beside:
            said.append(f"{name} {one.where} changes with {_list(one.beside)}")
        elif one.where == "alone" and (needed := one.ours.mechanisms - base):
            said.append(f"{name} alone needs {_list(sorted(needed))}")
    return f" Not separable: {'; '.join(said)}." if said else ""


def _list(names: Sequence[str]) -> str:
    return " and ".join(in_words(name) for name in names)


def _figure(results: RunResults, ablation: Ablation, metric: str, found: Sequence[Effect]) -> Figure:
    rows = [name for name in ablation.mechanisms if any(one.addition.mechanism == name for one in found)]
    figure, axes = blank(results.source, height=1.9 + 0.46 * len(rows))
    axes.axvline(0, color=INK, linewidth=1.1, zorder=1)
    described: list[str] = []
    for row, name in enumerate(rows):
        own = [one for one in found if one.addition.mechanism == name]
        across = axes.get_yaxis_transform()
        said = "   ".join(f"{_letter(one)} {_value(metric, one)}" for one in own)
        axes.text(0, 0.33 - row, in_words(name), fontsize=SMALL, color=INK, va="center", transform=across, bbox=CLEAR)
        axes.text(
            1, 0.33 - row, said, fontsize=SMALLER, color=INK, va="center", ha="right", transform=across, bbox=CLEAR
        )
        for one in own:
            draw_effect(axes, -float(row), one)
        described += [f"{in_words(name)} {_described(metric, one)}" for one in own]
    axes.set(ylim=(0.45 - len(rows), 0.6), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.06)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    words = describe_metric_of(metric, results.settings)
    unit = _unit(metric, words.direction)
    name_axes(axes, f"What each mechanism adds: {words.label}", f"difference in {words.label}{unit}", "")
    key(figure, _key(found))
    return Figure(
        f"adds-{metric}", png(figure), f"Forest plot of {words.label}, with minus without: {'; '.join(described)}."
    )


def _unit(metric: str, better: str) -> str:
    """Scores have none, but for the count of dead features."""
    said = [part for part in ("features" if metric == "dead" else "", better) if part]
    return f" ({'; '.join(said)})" if said else ""


def draw_effect(axes: Axes, y: float, one: Effect) -> None:
    colour, marker, above = STYLES[one.addition.where]
    mean = one.difference.estimate
    if mean.interval is not None:
        axes.plot(mean.interval, [y + above] * 2, color=colour, linewidth=2.2, solid_capstyle="butt")
    filled = colour if one.matched else "white"
    axes.plot(
        [mean.value], [y + above], marker, color=colour, markerfacecolor=filled, markersize=6.5, markeredgewidth=1.4
    )


def _letter(one: Effect) -> str:
    return "alone" if one.addition.where == "alone" else "combined"


def _value(metric: str, one: Effect) -> str:
    return f"{number(metric, one.difference.estimate.value, True)} {SIGNS[one.difference.verdict]}"


def _described(metric: str, one: Effect) -> str:
    mean, how = one.difference.estimate, "" if one.matched else ", not at equal L0"
    bounds = interval(metric, mean.interval, True)
    words = number(metric, mean.value, True) + ("" if bounds == MISSING else f" {bounds}")
    return f"{one.addition.where} {words}{how}"


def _key(found: Sequence[Effect]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=colour, marker=marker, linewidth=2.2, label=where)
        for where, (colour, marker, _) in STYLES.items()
        if any(one.addition.where == where for one in found)
    ]
    if not all(one.matched for one in found):
        label = "hollow: no L0 in common"
        handles.append(Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="", label=label))
    handles.append(Line2D([], [], color=INK, linewidth=1.1, label="adds nothing"))
    return handles
