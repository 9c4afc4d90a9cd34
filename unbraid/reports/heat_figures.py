"""Figures of attention: queries down, keys across, with tokens on the axes and the supporting facts marked."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from unbraid.reports.canvas import GREY, INK, SMALLER, Figure, Section, blank_grid, plain, png, short
from unbraid.reports.head_tables import head_table
from unbraid.reports.run_results import RunResults
from unbraid.reports.story_attention import StoryAttention, story_attention
from unbraid.reports.tasks import Row, Task, drawn, tasks, undrawn

MARK = "#D55E00"
MOST_COLUMNS = 4
NORM = PowerNorm(0.5, 0, 1)
TITLE, SIDE = 8.0, 3.1
LETTERS = 175
"""Points that the tokens of one axis have together."""


def chosen_heads(results: RunResults) -> Section:
    """A figure a task: of every setting the head that attends most to the supporting facts, on the same story."""
    found = tasks(results)
    figures = [figure for task in found if (figure := _chosen(results, task))]
    caption = (
        "The head (of any layer of the first replicate) that gives most of its attention to the supporting facts when "
        "the question is read, for each setting, on the first test story. Across: keys; down: "
        "queries. Orange: the supporting facts, and the box is where the question's last token should attend. "
        "Colour: attention, on a square-root scale from 0 to 1. In brackets: layer and head, counted from 0, and the "
        f"share of attention in the box.{undrawn(found)}"
    )
    return Section("Attention of chosen heads", caption, figures)


def gallery(results: RunResults) -> Section:
    """All heads of the first and of the last setting of each task."""
    found = tasks(results)
    chosen = [(task, row) for task in found for row in dict.fromkeys((0, len(task.rows) - 1))]
    figures = [figure for task, row in chosen if (figure := _gallery(results, task, task.rows[row]))]
    caption = (
        "Every head of the first replicate, a row of panels a layer, on the first test story; read as above. Orange "
        "tokens and box: the supporting facts. Over each panel: layer and head, and the share of attention in the box."
    )
    return Section(
        "All heads", caption, figures, "".join(head_table(results, task, task.rows[row]) for task, row in chosen)
    )


def _chosen(results: RunResults, task: Task) -> Figure | None:
    seen = [(row, one) for row in drawn(results, task.rows) if (one := story_attention(results, row.setting))]
    if not seen:
        return None
    title = f"{task.name}: “{seen[0][1].question}” ({seen[0][1].answer})"
    columns = 2 if len(seen) <= MOST_COLUMNS else MOST_COLUMNS
    figure, panels = blank_grid(results.source, title, len(seen), columns, SIDE)
    described: list[str] = []
    for axes, (row, one) in zip(panels, seen, strict=True):
        layer, head = divmod(int(one.support_mass.argmax()), one.patterns.shape[1])
        mass = float(one.support_mass[layer, head])
        draw_heat(axes, one.patterns[layer, head], one)
        axes.set_title(plain(f"{short(row.name, 34)} ({layer}.{head}: {mass:.2f})"), fontsize=TITLE, color=INK)
        described.append(f"{row.name}: head {layer}.{head} gives {mass:.2f}")
    _name_tokens(figure, panels, columns, seen[0][1])
    return Figure(
        f"heads-{task.slug}", png(figure), f"Attention maps, {title}: {'; '.join(described)} to the support.", True
    )


def _gallery(results: RunResults, task: Task, row: Row) -> Figure | None:
    one = story_attention(results, row.setting)
    if one is None:
        return None
    layers, heads = one.patterns.shape[:2]
    title = f"{task.name}, {row.name}: “{one.question}” ({one.answer}; said {one.said})"
    columns = min(heads, MOST_COLUMNS)
    figure, panels = blank_grid(results.source, title, layers * heads, columns, SIDE)
    for place, axes in enumerate(panels):
        layer, head = divmod(place, heads)
        draw_heat(axes, one.patterns[layer, head], one)
        axes.set_title(f"{layer}.{head}: {one.support_mass[layer, head]:.2f}", fontsize=TITLE, color=INK)
    _name_tokens(figure, panels, columns, one)
    alt = f"Attention maps of all {layers * heads} heads, {title}: the most any gives the support is "
    return Figure(f"gallery-{task.slug}-{row.place + 1}", png(figure), f"{alt}{one.support_mass.max():.2f}.", True)


def draw_heat(axes: Axes, pattern: np.ndarray, one: StoryAttention) -> AxesImage:
    axes.grid(False)
    drawn = axes.imshow(pattern, aspect="auto", interpolation="nearest", cmap="viridis", norm=NORM)
    for first, last in _runs(one.support):
        box = Rectangle((first - 0.5, one.asked - 0.5), last - first + 1, 1, fill=False, edgecolor=MARK, linewidth=1.3)
        box.set(clip_on=False, zorder=4)
        axes.add_patch(box)
    axes.set_xlim(-0.5, pattern.shape[1] - 0.5)
    axes.set_ylim(pattern.shape[0] - 0.5, -0.5)
    return drawn


def _name_tokens(figure: MatplotlibFigure, panels: Sequence[Axes], columns: int, one: StoryAttention) -> None:
    """Tokens at the left of each row of panels and under the lowest of each column; those that support are orange."""
    amount = len(one.words)
    size = min(SMALLER - 1, LETTERS / amount)
    for place, axes in enumerate(panels):
        left, lowest = place % columns == 0, place + columns >= len(panels)
        axes.set_xticks(range(amount), one.words if lowest else [""] * amount, rotation=90, fontsize=size)
        axes.set_yticks(range(amount), one.words if left else [""] * amount, fontsize=size)
        axes.tick_params(length=0, pad=1.5)
        for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
            for word in one.support:
                labels[word].set_color(MARK)
            labels[one.asked].set_fontweight("bold")
    figure.supxlabel("keys", fontsize=SMALLER, color=GREY)
    figure.supylabel("queries", fontsize=SMALLER, color=GREY)
    bar = figure.colorbar(panels[0].images[0], ax=list(panels), shrink=0.5, aspect=30, pad=0.01)
    bar.set_label("attention", fontsize=SMALLER)
    bar.ax.tick_params(labelsize=SMALLER)


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring positions as first and last."""
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found
