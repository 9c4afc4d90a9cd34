"""Figures of what a case costs: its difference from the first case at everything else equal, paired by replicate."""

import json

from unbraid.metrics.intervals import Difference, paired_difference
from unbraid.reports.canvas import INK, SIGNS, Figure, Section, blank, name_axes, png
from unbraid.reports.forest_figures import row_style
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.score_figures import name_row
from unbraid.reports.tasks import Row, Task, tasks
from unbraid.reports.words import describe_metric, interval, number

COSTS = ("accuracy", "support_best")


def costs(results: RunResults) -> Section:
    """A figure a score and task: a row for every setting that is not of the first case."""
    found = tasks(results) if len(results.config.get("cases", {})) > 1 else []
    figures = [figure for metric in COSTS for task in found if (figure := _figure(results, task, metric)) is not None]
    first = next(iter(results.config.get("cases", {})), "")
    caption = (
        f"Each row is a setting minus {first} with everything else equal, paired by replicate: mean and 95 % interval. "
        "▲ higher, ▼ lower, ○ undecided: the interval holds 0, or there are fewer than five pairs."
    )
    return Section(f"Differences from {first}, all else equal", caption, figures)


def differences(results: RunResults, task: Task, metric: str) -> list[tuple[Row, Difference]]:
    """Every row of a task whose setting has a partner in the first case."""
    first = next(iter(results.config["cases"]))
    partners = {_rest(row.setting): row.setting for row in task.rows if row.setting.swept.get("case") == first}
    return [
        (row, paired_difference(_members(row.setting, metric), _members(partner, metric)))
        for row in task.rows
        if row.setting.swept.get("case") != first and (partner := partners.get(_rest(row.setting))) is not None
    ]


def _rest(setting: Setting) -> str:
    return json.dumps({path: value for path, value in setting.swept.items() if path != "case"}, sort_keys=True)


def _members(setting: Setting, metric: str) -> dict[str, float]:
    members = setting.scores[metric].members if metric in setting.scores else []
    pairs = zip(setting.replicates, members, strict=False)
    return {replicate: value for replicate, value in pairs if value is not None}


def _figure(results: RunResults, task: Task, metric: str) -> Figure | None:
    rows = [(row, one) for row, one in differences(results, task, metric) if one.pairs]
    if not rows:
        return None
    figure, axes = blank(results.source, height=1.5 + 0.46 * len(rows))
    axes.axvline(0, color=INK, linewidth=1.1, zorder=1)
    described: list[str] = []
    for place, (row, one) in enumerate(rows):
        y, mean, style = -float(place), one.estimate, row_style(row)
        value = f"{number(metric, mean.value, True)} {SIGNS[one.verdict]}"
        name_row(axes, y, row.name, value)
        if mean.interval is not None:
            axes.plot(mean.interval, [y, y], color=style.colour, linewidth=2.6, solid_capstyle="butt")
        axes.plot([mean.value], [y], style.marker, color=style.colour, markersize=8, markeredgecolor="white")
        described.append(f"{row.name} {number(metric, mean.value, True)} {interval(metric, mean.interval, True)}")
    axes.set(ylim=(0.5 - len(rows), 0.65), yticks=[])
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)
    heading = describe_metric(metric).label
    name_axes(axes, f"{heading}: {task.name}", f"difference in {heading.lower()}", "")
    return Figure(f"cost-{metric}-{task.slug}", png(figure), f"Differences on {task.name}: {'; '.join(described)}.")
