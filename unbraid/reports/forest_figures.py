"""Figures of models' scores, task by task: every setting and replicate, beside chance."""

from unbraid.reports.canvas import GREY, Figure, Section, Style, blank, key, name_axes, png, style_at
from unbraid.reports.run_results import RunResults, Score, finite
from unbraid.reports.score_figures import draw_row, name_row, row_key
from unbraid.reports.tasks import BAR, WITHOUT, Row, Task, tasks, without_the_question
from unbraid.reports.words import describe_metric, estimate, number

FORESTS = ("accuracy", "support_best", "separation")
MOST_ROWS = 40


def row_style(row: Row) -> Style:
    """The same for a row in every figure."""
    return style_at(row.place)


def forests(results: RunResults) -> Section:
    """For each score a figure a task, with a row a setting."""
    found = tasks(results)
    figures = [
        _figure(results, task, metric)
        for metric in FORESTS
        for task in found
        if any(metric in row.setting.scores for row in task.rows)
    ]
    caption = (
        "Each row is a setting. Small dots: one per replicate. Large marker: their mean, with its 95 % interval as a "
        "bar (often narrower than the marker). Dashed tick: chance. For accuracy that is the best of a few "
        "shortcuts that do not read the question; for the support of the best head, and for separation, the same model "
        f"before it was trained. Solid tick: the ceiling. Dotted line, over accuracies: {BAR}. Scores have no unit."
    )
    return Section("Scores by task", caption, figures)


def _figure(results: RunResults, task: Task, metric: str) -> Figure:
    rows = [(row, row.setting.scores[metric]) for row in task.rows if metric in row.setting.scores][:MOST_ROWS]
    figure, axes = blank(results.source, height=1.75 + 0.46 * len(rows))
    for place, (row, score) in enumerate(rows):
        name_row(axes, -float(place), row.name, estimate(metric, score))
        draw_row(axes, -float(place), row_style(row), score)
    bar = without_the_question(results, task) if metric == "accuracy" else None
    line = [] if bar is None else [axes.axvline(bar, color=GREY, linestyle=":", linewidth=1.4, zorder=1, label=WITHOUT)]
    axes.set(xlim=_limits([score for _, score in rows]), ylim=(0.6 - len(rows), 0.65), yticks=[])
    axes.spines["left"].set_visible(False)
    words = describe_metric(metric)
    name_axes(axes, f"{words.label}: {task.name}", f"{words.label} ({words.direction})", "")
    key(figure, [*row_key([score for _, score in rows]), *line])
    described = "; ".join(f"{row.name} {estimate(metric, score)}" for row, score in rows)
    described += "" if bar is None else f"; without the question at most {number(metric, bar)}"
    return Figure(
        f"forest-{metric}-{task.slug}", png(figure), f"Dot plot of {words.label} on {task.name}: {described}."
    )


def _limits(scores: list[Score]) -> tuple[float, float]:
    """From 0 or below to 1 or above."""
    values = [value for score in scores for value in finite([*score.members, score.chance])]
    return min(-0.02, min(values, default=0.0) * 1.1), max(1.03, max(values, default=1.0) * 1.05)
