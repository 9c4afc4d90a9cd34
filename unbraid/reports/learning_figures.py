"""Figures of learning: accuracy against the step, task by task, with what rules of thumb would have."""

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.reports.bands import Band
from unbraid.reports.canvas import GREY, INK, SMALLER, Picture, Plate, blank, handle, key, name_axes, plain, png, short
from unbraid.reports.findings import Findings
from unbraid.reports.forest_figures import row_look
from unbraid.reports.tasks import BAR, WITHOUT, Row, Task, drawn, tasks, undrawn

READS = "asked: "
"""How the names of rules begin that do read it."""
CLOSE = 0.045
"""Two shortcuts nearer than this share a line of text."""


def learning(findings: Findings) -> Plate:
    """A picture a task."""
    found = tasks(findings) if findings.is_taught else []
    pictures = [picture for task in found if (picture := _picture(findings, task))]
    fixed = findings.config.get("world", {}).get("examples")
    batch = "the training batch, which is fresh stories" if fixed is None else "the training batch, which is seen again"
    caption = (
        f"Share of right answers on {batch}, against the training step. Line: mean over replicates. Band: its 95 % "
        "interval. Grey, dotted: what rules of thumb would have that do not read the question. Black, dashed: "
        f"{BAR}.{undrawn(found)}"
    )
    return Plate("Learning", caption, pictures)


def _picture(findings: Findings, task: Task) -> Picture | None:
    rows = drawn(findings, task.rows)
    curves = [(row, curve) for row in rows if (curve := findings.curve(row.setting, "accuracy"))]
    if not curves:
        return None
    figure, axes = blank(findings.source, height=3.4 + 0.2 * len(curves))
    handles: list[Line2D] = []
    for row, curve in curves:
        look = row_look(row)
        Band.over_seeds(curve.steps, curve.values).draw(axes, look.colour, look.dashes)
        handles.append(handle(look, short(row.name)))
    last = max(int(curve.steps[-1]) for _, curve in curves)
    axes.set(xlim=(0, last), ylim=(0, 1.04))
    _draw_shortcuts(axes, _shortcuts(findings, task.rows[0]), last)
    name_axes(axes, task.name, "training step", "accuracy")
    key(figure, handles)
    ends = "; ".join(f"{row.name} ends at {curve.values[:, -1].mean():.3g}" for row, curve in curves)
    return Picture(f"learning-{task.slug}", png(figure), f"Accuracy on {task.name} against training step: {ends}.")


def _shortcuts(findings: Findings, row: Row) -> dict[str, float]:
    """What the world's rules of thumb have that do not read the question, and the most that is possible so."""
    kept = findings.stories[row.setting.places[0][0]].get("shortcuts", {})
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
