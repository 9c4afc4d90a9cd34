"""Figures of single heads: attention entropy against support, and use of routed heads."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.reports.canvas import GREY, Figure, Section, blank, handle, key, level, make_log, name_axes, png, short
from unbraid.reports.forest_figures import row_style
from unbraid.reports.run_results import RunResults
from unbraid.reports.tasks import Row, Task, drawn, tasks, undrawn


def attention_and_support(results: RunResults) -> Section:
    """A figure a task: every head of every replicate by the entropy of its attention and its support."""
    found = tasks(results)
    figures = [_attention_figure(results, task) for task in found if _has_support(results, task)]
    caption = (
        "Each point is a head of the last layer of one replicate. Across: normalized attention entropy, the effective "
        "number of tokens it attends to over those it may attend to (1 is uniform, left is sparse). Up: the share of "
        "its attention on the supporting facts at the question's last token. Dotted: uniform attention. If sparse "
        f"heads attended to the right tokens, points at the left would be high.{undrawn(found)}"
    )
    return Section("Attention entropy and support", caption, figures)


def routes(results: RunResults) -> Section:
    """A figure a task of the shares of tokens that are routed to each head, where they are."""
    found = tasks(results)
    figures = [figure for task in found if (figure := _routes(results, task))]
    caption = (
        "For each layer the share of tokens routed to each head, from the most used to the least; one line per "
        f"replicate. Dotted: equal use of all heads.{undrawn([_routed(results, task) for task in found])}"
    )
    return Section("Use of routed heads", caption, figures)


def _has_support(results: RunResults, task: Task) -> bool:
    return all("support" in results.tables[stack] for row in task.rows for stack, _ in row.setting.places)


def _attention_figure(results: RunResults, task: Task) -> Figure:
    rows = drawn(results, task.rows)
    figure, axes = blank(results.source, height=3.4 + 0.2 * len(rows))
    lowest, handles = 1.0, []
    for row in rows:
        style = row_style(row)
        entropy, support = (_last_layer(results, row.setting.places, name) for name in ("attention_entropy", "support"))
        axes.plot(entropy, support, style.marker, color=style.colour, markersize=4.5, alpha=0.6, markeredgewidth=0)
        lowest = min(lowest, float(np.nanmin(entropy, initial=1.0)))
        handles.append(handle(style, short(row.name), marker=True))
        handles[-1].set_linestyle("")
    uniform = np.mean([results.tables[stack]["uniform"][place] for stack, place in rows[0].setting.places])
    line = level(axes, float(uniform), "a uniform head", ":")
    make_log(axes, "x", lowest, 1.0)
    axes.set_ylim(-0.02, 1.03)
    name_axes(axes, task.name, "attention entropy (normalized, log; 1 is uniform)", "attention on the supporting facts")
    key(figure, [*handles, *([line] if line else [])])
    return Figure(
        f"attention-support-{task.slug}",
        png(figure),
        f"Heads on {task.name}: support against attention entropy, row by row.",
    )


def _last_layer(results: RunResults, places: list[tuple[int, int]], table: str) -> np.ndarray:
    return np.concatenate([results.tables[stack][table][place, -1] for stack, place in places])


def _routes(results: RunResults, task: Task) -> Figure | None:
    rows = drawn(results, _routed(results, task).rows)
    if not rows:
        return None
    figure, axes = blank(results.source, height=3.4 + 0.2 * len(rows))
    described = [_draw_shares(axes, _shares(results, row), row) for row in rows]
    layers, heads = max(_shares(results, row).shape[1:] for row in rows)
    middles = [layer * (heads + 1) + (heads - 1) / 2 for layer in range(layers)]
    axes.set_xticks(middles, [f"layer {layer}" for layer in range(layers)])
    axes.set_ylim(0, 1.03)
    name_axes(axes, task.name, "heads, most used first", "share of tokens routed to it")
    key(figure, [_solid(row) for row in rows])
    return Figure(
        f"routes-{task.slug}", png(figure), f"Shares of use on {task.name}, last layer: {'; '.join(described)}."
    )


def _routed(results: RunResults, task: Task) -> Task:
    """The task with those of its rows whose tokens are routed."""
    return Task(task.name, [row for row in task.rows if "usage" in results.tables[row.setting.places[0][0]]])


def _solid(row: Row) -> Line2D:
    drawn = handle(row_style(row), short(row.name), marker=True)
    drawn.set_linestyle("-")
    return drawn


def _shares(results: RunResults, row: Row) -> np.ndarray:
    """Members × layers × heads, each layer's most used first."""
    return -np.sort([-results.tables[stack]["usage"][place] for stack, place in row.setting.places], -1)


def _draw_shares(axes: Axes, shares: np.ndarray, row: Row) -> str:
    """A line a layer and replicate, and where all would be alike; gives the ends of the last layer in words."""
    _, layers, heads = shares.shape
    style = row_style(row)
    for layer in range(layers):
        x = layer * (heads + 1) + np.arange(heads)
        axes.plot(
            x, shares[:, layer].T, color=style.colour, marker=style.marker, markersize=3.5, alpha=0.6, linewidth=1
        )
        alike = float(shares[:, layer].mean())
        axes.plot([x[0] - 0.4, x[-1] + 0.4], [alike, alike], ":", color=GREY, linewidth=1.4)
    last = shares[:, -1].mean(0)
    return f"{row.name}: from {last[0]:.2f} to {last[-1]:.2f}"
