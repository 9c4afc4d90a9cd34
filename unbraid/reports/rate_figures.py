"""Figures of baselines: how well each method recovers a feature, against how often the feature fired in its data."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.metrics.intervals import Estimate, estimate
from unbraid.reports.canvas import (
    HEIGHT,
    Figure,
    Section,
    Style,
    blank,
    handle,
    key,
    level,
    name_axes,
    png,
    shared,
    short,
)
from unbraid.reports.methods import METHOD, SIZE, by_method, figures, groups, method_style
from unbraid.reports.run_results import RunResults, Setting

FEWEST = 5
"""A bin with fewer features than this, over all replicates, is not drawn."""


def rates(results: RunResults) -> Section:
    """A figure for each world, a line for each method."""
    one_size = not any(SIZE in one.swept for one in results.settings)
    found = groups(results, (METHOD,)) if one_size and results.has("seen") else {}
    drawn = [_figure(results, place, title, settings) for place, (title, settings) in enumerate(found.items())]
    caption = (
        "Mean cosine of a true feature with the direction most like it (y, 1 is perfect), for features by the share of "
        "the fitted samples they fired in (x, each bin twice the one before; the first: features that never did). Bars "
        "are 95 % intervals over replicates."
    )
    return Section("Recovery against how often a feature fires", caption, figures(drawn))


def _figure(results: RunResults, place: int, title: str, settings: list[Setting]) -> Figure | None:
    methods = by_method(settings)
    seen = np.stack([results.table(one, "seen") for ones in methods.values() for one in ones])
    if not seen.any():
        return None
    edges = _edges(seen)
    figure, axes = blank(results.source, height=HEIGHT + 0.3 + 0.12 * len(methods))
    handles: list[Line2D] = []
    for at, (name, ones) in enumerate(methods.items()):
        bins = _bins(results.table(ones[0], "best_cosine"), results.table(ones[0], "seen"), edges)
        handles.append(_draw(axes, method_style(at), name, bins))
    lines = [level(axes, value, name, ":") for value, name in shared(settings, "mmcs", "chance")]
    axes.set_xticks(range(len(edges)), ["never", *[_share(edge) for edge in edges[:-1]]], rotation=45)
    axes.set_xlim(-0.5, len(edges) - 0.5)
    axes.set_ylim(0, 1.04)
    name_axes(axes, short(title), "fires in at least this share of the samples", "best cosine, mean")
    key(figure, handles + [line for line in lines if line])
    alt = f"{title}: best cosine of true features against how often they fired in the data, for {', '.join(methods)}."
    return Figure(f"rate-{place + 1}", png(figure), alt)


def _edges(seen: np.ndarray) -> np.ndarray:
    """Bins of doubling rates from the lowest seen to the highest."""
    low, high = float(seen[seen > 0].min()), float(seen.max())
    return low * 0.999 * 2.0 ** np.arange(int(np.log2(high / low)) + 2)


def _bins(cosines: np.ndarray, seen: np.ndarray, edges: np.ndarray) -> list[tuple[int, Estimate]]:
    """Each bin with features in it: the mean over its features, estimated over replicates."""
    where = np.digitize(seen, edges)
    found: list[tuple[int, Estimate]] = []
    for place in range(len(edges)):
        inside = where == place
        if inside.sum() >= FEWEST:
            means = [float(row[kept].mean()) for row, kept in zip(cosines, inside, strict=True) if kept.any()]
            found.append((place, estimate(means)))
    return found


def _draw(axes: Axes, drawn: Style, name: str, bins: list[tuple[int, Estimate]]) -> Line2D:
    x = [place for place, _ in bins]
    axes.plot(
        x, [one.value for _, one in bins], color=drawn.colour, linestyle=drawn.dashes, marker=drawn.marker, linewidth=2
    )
    for place, one in bins:
        if one.interval is not None:
            axes.plot([place, place], one.interval, color=drawn.colour, linewidth=2.4, alpha=0.5)
    return handle(drawn, name, marker=True)


def _share(edge: float) -> str:
    return f"{edge:.2g}"
