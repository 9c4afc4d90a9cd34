"""The table of the head-constraints study (`studies/published/head_constraints.toml`) beside a run of the same."""

import json
import math
from functools import cache
from pathlib import Path

from matplotlib.lines import Line2D

from unbraid.config import JsonDict, flatten, read_toml
from unbraid.reports import markup
from unbraid.reports.canvas import INK, Figure, Section, blank, key, name_axes, png
from unbraid.reports.configurations import setting_configs
from unbraid.reports.forest_figures import row_style
from unbraid.reports.markup import Group
from unbraid.reports.run_results import RunResults, Score
from unbraid.reports.score_figures import draw_row, name_row, row_key
from unbraid.reports.tasks import Row, tasks
from unbraid.reports.words import MISSING, interval, number

PUBLISHED = Path(__file__).parents[1] / "studies" / "published" / "head_constraints.toml"


def published_accuracies(results: RunResults) -> Section:
    """Our accuracies with those of the study; empty where the run is not of its experiments."""
    rows = _rows(results)
    error = _error(rows[0][1]) if rows else 0.0
    caption = (
        "Diamond: what the study reports, of one model, with twice the standard error that its 1000 test questions "
        f"leave (about ± {2 * error:.2f}). Small dots: our replicates. Large marker: their mean with its 95 % "
        "interval. Dashed tick: chance, the best of a few shortcuts that do not read the question. Solid: "
        "all right."
    )
    figures = [_figure(results, rows)] if rows else []
    return Section("The table of the head-constraints study, run again", caption, figures, _table(rows) if rows else "")


def _rows(results: RunResults) -> list[tuple[Row, float, Score]]:
    """Each case that the study reports, trained as it was: ours, and its accuracy."""
    source = _source()
    configs = {json.dumps(swept): flatten(tree) for swept, tree in setting_configs(results.config)}
    found: list[tuple[Row, float, Score]] = []
    for task in tasks(results):
        for row in task.rows:
            ours = configs.get(json.dumps(row.setting.swept), {})
            needed = {**source["conditions"], **source["sizes"].get(row.name, {})}
            alike = all(ours.get(path) == value for path, value in needed.items())
            if alike and row.name in source["accuracy"] and "accuracy" in row.setting.scores:
                found.append((row, source["accuracy"][row.name], row.setting.scores["accuracy"]))
    return found


def _figure(results: RunResults, rows: list[tuple[Row, float, Score]]) -> Figure:
    figure, axes = blank(results.source, height=1.95 + 0.5 * len(rows))
    for place, (row, theirs, score) in enumerate(rows):
        y = -float(place)
        name_row(axes, y, row.name, f"{number('accuracy', score.value)} (study {theirs:.3f})")
        draw_row(axes, y, row_style(row), score)
        spread = 2 * _error(theirs)
        axes.plot([theirs - spread, theirs + spread], [y - 0.22] * 2, color=INK, linewidth=1)
        axes.plot([theirs], [y - 0.22], "d", color="white", markeredgecolor=INK, markersize=6)
    axes.set(xlim=(0, 1.03), ylim=(0.5 - len(rows), 0.65), yticks=[])
    axes.spines["left"].set_visible(False)
    name_axes(axes, "Accuracy beside the study's", "accuracy (higher is better)", "")
    study = Line2D([], [], color=INK, marker="d", markerfacecolor="white", linewidth=1, label="the study, ± 2 s.e.")
    key(figure, [*row_key([score for *_, score in rows]), study])
    described = "; ".join(
        f"{row.name} {number('accuracy', score.value)}, study {theirs:.3f}" for row, theirs, score in rows
    )
    return Figure("published-accuracy", png(figure), f"Accuracy of the study's experiments: {described}.")


def _table(rows: list[tuple[Row, float, Score]]) -> str:
    head = ("experiment", "ours", "95 % interval", "the study", "is it inside?", "chance")
    return markup.table("Accuracies", head, [Group([_cells(*each) for each in rows])])


def _cells(row: Row, theirs: float, score: Score) -> list[str]:
    """Whether the study's value is in our interval, widened by the luck of its questions."""
    inside = MISSING
    if score.interval:
        low, high = score.interval
        inside = "yes" if low - 2 * _error(theirs) <= theirs <= high + 2 * _error(theirs) else "no"
    bounds = interval("accuracy", score.interval)
    return [
        row.name,
        number("accuracy", score.value),
        bounds,
        f"{theirs:.3f}",
        inside,
        number("accuracy", score.chance),
    ]


def _error(share: float) -> float:
    """The standard error of a share of the study's test questions."""
    return math.sqrt(share * (1 - share) / _source()["questions"])


@cache
def _source() -> JsonDict:
    return read_toml(PUBLISHED)
