"""Figures of embeddings: every sample a point in the plane, coloured by the feature that fires strongest in it."""

import numpy as np
from matplotlib.colors import LogNorm

from unbraid.reports.canvas import SMALL, Figure, Section, blank, name_axes, plain, png, short
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.words import number

EMPTY = "#c2c2c2"


def embeddings(results: RunResults) -> Section:
    """A figure a setting, of its first replicate."""
    figures = [_figure(results, setting, place) for place, setting in enumerate(results.drawn)]
    caption = (
        "Each point is a sample, near those it is like (t-SNE; the axes have no unit). Colour: which of the planted "
        "features fires strongest in it, the first being the most frequent (log scale); grey: nothing fires. Evenness "
        "is 1 where points lie as evenly as uniform ones; clusters are HDBSCAN's, of the points that are not empty. "
        "First replicate of each setting."
    )
    return Section("The samples in the plane", caption, [figure for figure in figures if figure])


def _figure(results: RunResults, setting: Setting, place: int) -> Figure | None:
    stack, position = setting.places[0]
    tables = results.tables[stack]
    if f"points.{position}" not in tables:
        return None
    points, strongest = tables[f"points.{position}"], tables[f"strongest.{position}"]
    figure, axes = blank(results.source, height=4.3)
    axes.grid(False)
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[["left", "bottom"]].set_visible(False)
    empty = strongest < 0
    axes.scatter(*points[empty].T, s=4, color=EMPTY, linewidths=0)
    ranks = LogNorm(1, len(tables["probabilities"]))
    drawn = axes.scatter(*points[~empty].T, s=5, c=strongest[~empty] + 1, cmap="viridis", norm=ranks, linewidths=0)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8)
    bar.set_label("strongest feature (1 is the most frequent)", fontsize=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    bar.ax.yaxis.set_major_formatter("{x:g}")
    said = [
        f"{word} {number(word, setting.scores[word].members[0])}"
        for word in ("evenness", "clusters")
        if word in setting.scores
    ]
    said.append(f"{np.mean(empty):.0%} empty")
    name_axes(axes, short(setting.label), "", "")
    axes.set_xlabel(plain(" · ".join(said)), fontsize=SMALL)
    alt = f"{setting.label}: t-SNE of {len(points)} samples; {', '.join(said)}."
    return Figure(f"embedding-{place + 1}", png(figure), alt)
