"""Figures of feature tracking: what is learned, unlearned, moved and kept while training, and which entries die."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from unbraid.metrics.catalog import FOUND
from unbraid.reports.canvas import COLOURS, DASHES, MARKERS, Figure, Section, Style, blank, handle, key, name_axes, png
from unbraid.reports.grids import TITLE, Family, families, grids, ratio
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.step_axis import log_steps

FATES = {
    "learned": "Learned since the check before",
    "unlearned": "Unlearned since the check before",
    "moved": "Learned, moved to another entry",
    "still": "Still learned, by the same entry",
}


@dataclass(frozen=True)
class _Tracked:
    """One quantity of one setting at every check: members × checks."""

    steps: np.ndarray
    values: np.ndarray


def dead_entries(results: RunResults) -> Section:
    """Dead entries against the step, a line a size; for grids in the first column and the last."""
    figures = [
        _lines(results, family, f"dead-steps-{place}", "Dead entries", "dead entries", lambda arrays: arrays["dead"])
        for place, family in enumerate(_outer_columns(results), 1)
    ]
    caption = (
        "Entries that fired in none of the samples of a check (y, mean over replicates, log scale above 1) against the "
        "training step (x, log scale; the leftmost check is the start). Every check looks at the same fresh samples."
    )
    return Section("Dead entries while training", caption, [figure for figure in figures if figure])


def fates(results: RunResults) -> Section:
    """How many true features are learned, unlearned, moved and kept at every check; their mean change; thresholds."""
    figures: list[Figure | None] = []
    for place, family in enumerate(families(results), 1):
        for fate, title in FATES.items():
            of_fate = _at_threshold(fate)
            figures.append(_lines(results, family, f"fate-{fate}-{place}", title, "true features", of_fate))
        words = "1 − cosine"
        of_change = _at_threshold("mean_change")
        figures.append(_lines(results, family, f"change-{place}", "Mean change of what is kept", words, of_change))
        figures.append(_thresholds(results, family, place))
    caption = (
        f"True features (y) by what became of them since the check before (x, log scale). A feature is learned where "
        f"some entry has a cosine of at least {FOUND} with it. Unlearned: it was and is not. Moved: it was and is, "
        "by another entry. Still learned: by the same entry. Checks are evenly spaced in the logarithm of the step, so "
        "later ones have more training between them. Mean change: of the direction of the entries that are kept, since "
        "the check before. Last figure: how many are kept at the end, for other thresholds."
    )
    return Section("Features learned and unlearned", caption, [figure for figure in figures if figure])


def _at_threshold(name: str) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    def of(arrays: dict[str, np.ndarray]) -> np.ndarray:
        return arrays[name][int(np.abs(arrays["thresholds"] - FOUND).argmin())]

    return of


def tracked(
    results: RunResults, setting: Setting, quantity: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> _Tracked | None:
    """A quantity of every member of a setting; None where it was not tracked."""
    found = [(results.tracking[stack], position) for stack, position in setting.places]
    if not all(arrays for arrays, _ in found):
        return None
    rows = np.stack([quantity(arrays)[position] for arrays, position in found]).astype(float)
    return _Tracked(found[0][0]["steps"], rows)


def _outer_columns(results: RunResults) -> list[Family]:
    found: list[Family] = []
    for grid in grids(results):
        for column in dict.fromkeys((grid.columns[0], grid.columns[-1])):
            settings = [(ratio(row, grid.planted), setting) for row, setting in grid.column(column)]
            found.append(Family(grid.name_of(column), settings))
    return found or families(results)


def _lines(
    results: RunResults,
    family: Family,
    name: str,
    title: str,
    y: str,
    quantity: Callable[[dict[str, np.ndarray]], np.ndarray],
) -> Figure | None:
    """A line a setting, against the step."""
    drawn = [(label, one) for label, setting in family.settings if (one := tracked(results, setting, quantity))]
    if not drawn:
        return None
    figure, axes = blank(results.source, height=3.2 + 0.18 * len(drawn))
    handles = []
    for place, (label, one) in enumerate(drawn):
        style = _style(place)
        mean = _mean(one.values)
        axes.plot(
            log_steps(axes, one.steps),
            mean,
            color=style.colour,
            linestyle=style.dashes,
            linewidth=1.8,
            marker=style.marker,
            markersize=3.6,
        )
        handles.append(handle(style, label, marker=True))
    _scale(axes, np.concatenate([_mean(one.values) for _, one in drawn]), y)
    name_axes(axes, f"{title}\n{family.name}" if family.name else title, "training step (log)", y, TITLE)
    key(figure, handles)
    ends = "; ".join(f"{label} {_mean(one.values)[-1]:.4g}" for label, one in drawn)
    return Figure(name, png(figure), f"{title} against training step, {family.name}. At the end: {ends}.")


def _thresholds(results: RunResults, family: Family, place: int) -> Figure | None:
    """How many features are still learned at the last check, whatever counts as learned."""
    drawn = [(label, one) for label, setting in family.settings if (one := tracked(results, setting, _last_still))]
    if not drawn:
        return None
    figure, axes = blank(results.source, height=3.2 + 0.18 * len(drawn))
    thresholds = next(arrays["thresholds"] for arrays in results.tracking if arrays)
    handles = []
    for row, (label, one) in enumerate(drawn):
        style = _style(row)
        axes.plot(
            thresholds,
            one.values.mean(0),
            color=style.colour,
            linestyle=style.dashes,
            linewidth=1.8,
            marker=style.marker,
            markersize=4.5,
        )
        handles.append(handle(style, label, marker=True))
    axes.set_xticks(thresholds, [f"{value:g}" for value in thresholds])
    axes.set_ylim(bottom=0)
    title = "Still learned at the end"
    name_axes(
        axes, f"{title}\n{family.name}" if family.name else title, "least cosine that counts", "true features", TITLE
    )
    key(figure, handles)
    described = "; ".join(
        f"{label} {', '.join(f'{value:.4g}' for value in one.values.mean(0))}" for label, one in drawn
    )
    return Figure(f"thresholds-{place}", png(figure), f"{title} for thresholds {thresholds.tolist()}: {described}.")


def _last_still(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Members × thresholds."""
    return arrays["still"][..., -1].T


def _style(place: int) -> Style:
    place %= len(COLOURS)
    return Style(COLOURS[place], DASHES[place], MARKERS[place])


def _mean(values: np.ndarray) -> np.ndarray:
    """Over members that have a value; NaN where none has."""
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(0)
    return np.divide(total, known.sum(0), out=np.full(len(total), np.nan), where=known.any(0))


def _scale(axes: Axes, values: np.ndarray, y: str) -> None:
    kept = values[np.isfinite(values)]
    high = float(kept.max(initial=0))
    if y == "dead entries" and high > 100:
        axes.set_yscale("symlog", linthresh=1)
        axes.set_yticks([0, 1, 10, 100, 1000, 10_000], ["0", "1", "10", "100", "1,000", "10,000"])
        axes.set_ylim(0, 1.6 * high)
    else:
        axes.set_ylim(0, 1.08 * high if high > 0 else 1)
    if y == "true features":
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
