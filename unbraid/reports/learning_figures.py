"""Figures of learning: accuracy against the step, task by task, beside shortcuts."""

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.reports.bands import Band
from unbraid.reports.canvas import GREY, INK, SMALLER, Figure, Section, blank, handle, key, name_axes, plain, png, short
from unbraid.reports.forest_figures import row_style
from unbraid.reports.run_results import RunResults
from unbraid.reports.tasks import BAR, WITHOUT, Row, Task, drawn, tasks, undrawn

READS = "asked: "
"""How the names of rules begin that do read it."""
CLOSE = 0.045
"""Two shortcuts nearer than this share a line of text."""


def learning(results: RunResults) -> Section:
    """A figure a task."""
    found = tasks(results)
    figures = [figure for task in found if (figure := _figure(results, task))]
    fixed = results.config.get("world", {}).get("examples")
    batch = "the training batch, which is fresh stories" if fixed is None else "the training batch, which is seen again"
    caption = (
        f"Share of right answers on {batch}, against the training step. Line: mean over replicates. Band: its 95 % "
        "interval. Grey, dotted: shortcuts that do not read the question. Black, dashed: "
        f"{BAR}.{undrawn(found)}"
    )
    return Section("Learning", caption, figures)


def _figure(results: RunResults, task: Task) -> Figure | None:
    rows = drawn(results, task.rows)
    curves = [(row, curve) for row in rows if (curve := results.curve(row.setting, "accuracy"))]
    if not curves:
        return None
    figure, axes = blank(results.source, height=3.4 + 0.2 * len(curves))
    handles: list[Line2D] = []
    for row, curve in curves:
        style = row_style(row)
        Band.over_seeds(curve.steps, curve.values).draw(axes, style.colour, style.dashes)
        handles.append(handle(style, short(row.name)))
    last = max(int(curve.steps[-1]) for _, curve in curves)
    axes.set(xlim=(0, last), ylim=(0, 1.04))
    _draw_shortcuts(axes, _shortcuts(results, task.rows[0]), last)
    name_axes(axes, task.name, "training step", "accuracy")
    key(figure, handles)
    ends = "; ".join(f"{row.name} ends at {curve.values[:, -1].mean():.3g}" for row, curve in curves)
    return Figure(f"learning-{task.slug}", png(figure), f"Accuracy on {task.name} against training step: {ends}.")


def _shortcuts(results: RunResults, row: Row) -> dict[str, float]:
    """The accuracy of the world's shortcuts that do not read the question, and the most that is possible so."""
    kept = results.stories[row.setting.places[0][0]].get("shortcuts", {})
    return {name: value for name, value in kept.items() if name != "chance" and not name.startswith(READS)}


def _draw_shortcuts(axes: Axes, shortcuts: dict[str, float], last: int) -> None:
    """A line each; names of those close together stand together, the highest first."""
    shortcuts = dict(sorted(shortcuts.items(), key=lambda one: -one[1]))
    written: list[float] = []
    for height in shortcuts.values():
        bar = height == shortcuts.get(WITHOUT)
        axes.axhline(height, color=INK if bar else GREY, linestyle="--" if bar else ":", linewidth=1.1, zorder=1)
        if written and written[-1] - height < CLOSE:
            continue
        names = [name for name, value in shortcuts.items() if 0 <= height - value < CLOSE]
        words = axes.text(
            last, height + 0.012, plain(short(", ".join(names), 48)), fontsize=SMALLER, color=INK, ha="right"
        )
        words.set_bbox({"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.6})
        written.append(height)
