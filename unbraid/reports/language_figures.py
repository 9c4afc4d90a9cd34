"""How well every language model predicts: every setting and replicate, beside counting pairs of tokens."""

from dataclasses import replace

from unbraid.reports.canvas import GREY, Figure, Section, blank, key, name_axes, png
from unbraid.reports.forest_figures import MOST_ROWS, row_style
from unbraid.reports.language_model_sentences import counted_pairs
from unbraid.reports.run_results import RunResults, Score, finite
from unbraid.reports.score_figures import draw_row, name_row, row_key
from unbraid.reports.tasks import Row
from unbraid.reports.words import describe_metric, estimate, number

METRIC = "perplexity"
ROOM = 44
"""Letters of a name that leave room for the interval."""
FAR = 1.3
"""Chance is drawn where it is at most so many times the largest score: else everything else would be a point."""


def predictions(results: RunResults) -> Section:
    """A row a setting."""
    rows = [
        (Row(one.label, one, place), one.scores[METRIC])
        for place, one in enumerate(results.settings)
        if METRIC in one.scores
    ][:MOST_ROWS]
    caption = (
        "Each row is a setting. Small dots: one per replicate. Large marker: their mean, with its 95 % interval as a "
        "bar. Dotted line: what counting pairs of tokens gives; chance, which is counting single tokens, is drawn only "
        "where it is near. Perplexities of other vocabularies are not to be compared."
    )
    return Section("How well they predict", caption, [_figure(results, rows)] if rows else [])


def _figure(results: RunResults, rows: list[tuple[Row, Score]]) -> Figure:
    figure, axes = blank(results.source, height=1.75 + 0.46 * len(rows))
    largest = max(value for _, score in rows for value in finite(score.members))
    for place, (row, score) in enumerate(rows):
        near = score if score.chance is not None and score.chance <= FAR * largest else replace(score, chance=None)
        said = estimate(METRIC, score) if len(row.name) <= ROOM else number(METRIC, score.value)
        name_row(axes, -float(place), row.name, said)
        draw_row(axes, -float(place), row_style(row), near)
    pairs = counted_pairs(results, rows[0][0].setting).get(METRIC)
    line = []
    if pairs is not None:
        line = [axes.axvline(pairs, color=GREY, linestyle=":", linewidth=1.4, zorder=1, label="counting pairs")]
    axes.set(ylim=(0.6 - len(rows), 0.65), yticks=[])
    axes.margins(x=0.3)  # names stand on the left, numbers on the right
    axes.spines["left"].set_visible(False)
    words = describe_metric(METRIC)
    name_axes(axes, words.label, f"{words.label} ({words.direction})", "")
    mean, replicate, *_ = row_key([])
    key(figure, [mean, replicate, *line])
    described = "; ".join(f"{row.name} {estimate(METRIC, score)}" for row, score in rows)
    described += "" if pairs is None else f"; counting pairs {number(METRIC, pairs)}"
    return Figure(f"forest-{METRIC}", png(figure), f"Dot plot of {words.label}: {described}.")
