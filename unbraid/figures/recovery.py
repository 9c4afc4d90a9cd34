"""Figures of what a dictionary found of the planted truth: by frequency, by samples, as cosines, as fates."""

import altair as alt
import numpy as np
import pandas as pd

from unbraid.figures import marks
from unbraid.figures.figure import Figure, Parts, section
from unbraid.figures.scores import metric_figures
from unbraid.figures.words import axis_title, describe
from unbraid.metrics.catalog import CONCEPT_FATES, FOUND
from unbraid.results import RunResults

NEVER = 1e-8
"""Where a feature that practically never fires is drawn."""
FATE_COLOURS = (marks.COLOURS[0], marks.COLOURS[5], marks.COLOURS[4], marks.COLOURS[3], marks.GREY)


def draw_recovery(
    probabilities: "np.ndarray | list[float]", best_cosine: "np.ndarray", chance: float | None = None
) -> Figure:
    """Draw how well each planted feature was found, against how often it fires.

    Parameters
    ----------
    probabilities : array, shape (n,)
        The share of samples in which each planted feature fires, as `world.probabilities`.
    best_cosine : array, shape (m, n)
        Its cosine with the learned feature most like it, as `scores.tables["best_cosine"]`.
    chance : float, optional
        What random dictionaries score, as `scores.chance["mmcs"]`.

    Returns
    -------
    Figure
        It shows itself in a notebook; `figure.png()` and `figure.svg()` draw it for a document.

    Examples
    --------
    >>> import unbraid as ub
    >>> figure = ub.draw_recovery([0.1, 0.01], [[0.9, 0.4]], chance=0.2)
    >>> figure.png()[1:4]
    b'PNG'
    """
    cosine = np.atleast_2d(np.asarray(best_cosine, dtype=float)).mean(0)
    frame = pd.DataFrame({"concept": range(len(cosine)), "frequency": np.asarray(probabilities), "cosine": cosine})
    chart = _by_frequency(frame, marks.BLUE, chance)
    caption = "Each dot is a planted feature: its cosine with the learned feature most like it, mean over members."
    return Figure("recovery", "Recovery of planted features", chart, caption)


def _by_frequency(frame: pd.DataFrame, colour: marks.Colour, chance: float | None = None) -> alt.LayerChart:
    """Cosines against how often a planted feature fires, beside chance and the cosine from which it is found."""
    x = marks.log_x("frequency", "how often it fires (share of samples)")
    domain = [min(0.0, float(frame["cosine"].min())), 1]
    y = alt.Y("cosine:Q", scale=alt.Scale(domain=domain), title="best cosine")
    known = [] if chance is None or np.isnan(chance) else [marks.level(float(chance), "chance")]
    drawn = frame.assign(frequency=frame["frequency"].clip(NEVER))
    return alt.layer(marks.dots(drawn, x, y, colour), marks.level(FOUND, "found from", ceiling=True), *known)


@section("Which planted features were found")
def feature_recovery(results: RunResults) -> Parts:
    """Each dot is a planted feature: its best cosine, mean over replicates, against how often it fires."""
    if "best_cosine" in results.concepts:
        frame = marks.of_drawn(results, results.concepts).rename(columns={"best_cosine": "cosine"})
        frame = frame.groupby(["label", "concept"], sort=False)[["frequency", "cosine"]].mean().reset_index()
        chart = _by_frequency(frame, marks.setting_colour(results), results.of_metric("mmcs")["chance"].mean())
        yield Figure("recovery", "Recovery of planted features", chart, "Chance: mean over settings.")


@section("Recovery against how often a feature was seen")
def recovery_by_rate(results: RunResults) -> Parts:
    """Baselines: each dot is a planted feature, its best cosine against the share of fitted samples it fired in."""
    if "seen" in results.concepts:
        frame = marks.of_drawn(results, results.concepts)[["label", "concept", "seen", "best_cosine"]].dropna()
        frame = frame.assign(frequency=frame.pop("seen").clip(1e-5), cosine=frame.pop("best_cosine"))
        chart = _by_frequency(frame, marks.setting_colour(results))
        yield Figure("recovery-by-rate", "Recovery by frequency in the fitted samples", chart)


@section("What became of the planted concepts")
def concept_fates(results: RunResults) -> Parts:
    """Share of concepts, mean over replicates: found by one feature, split over several, merged with another, absorbed
    by a more specific one, or missed.
    """
    if "fate" in results.concepts:
        frame = results.concepts[results.concepts["fate"].isin(CONCEPT_FATES)].rename(columns={"fate": "what"})
        shares = frame.groupby("label", sort=False)["what"].value_counts(normalize=True).rename("share").reset_index()
        chart = marks.stacked(results, shares, CONCEPT_FATES, FATE_COLOURS, "share of concepts")
        yield Figure("fates", "Fates of planted concepts", chart, wide=marks.wide(results.labels))


@section("Truth × dictionary")
def cosines(results: RunResults) -> Parts:
    """Cosine of every planted with every learned feature, the match of each on the diagonal, unmatched ones after it.
    First replicate; orange is 1, white 0, blue −1.
    """
    titles = ("planted feature, in matched order", "learned feature, in matched order", "cosine")
    for index, label, _, member, tables in results.firsts(4):
        if (table := tables.get(f"cosines.{member}")) is not None:
            chart = marks.image(table, titles, (-1.0, 1.0), marks.DIVERGING)
            yield Figure(f"cosines-{index}", marks.short(label), chart)


@section("How often learned features fire")
def firing_rates(results: RunResults) -> Parts:
    """Over fresh samples; features that never fire are at the left edge."""
    if "density" not in results.features:
        return
    edges, rows = np.linspace(-6, 0, 31), []
    known = marks.of_drawn(results, results.features).dropna(subset=["density"])
    for label, group in known.groupby("label", sort=False):
        share = np.histogram(np.log10(group["density"].astype(float).clip(1e-6)), edges)[0] / len(group)
        rows += [(label, 10**edge, float(part)) for edge, part in zip(edges[:-1], share, strict=True)]
    table = pd.DataFrame(rows, columns=["label", "rate", "share"])
    chart = alt.Chart(table, width=marks.WIDTH, height=marks.HEIGHT).mark_line(interpolate="step-after")
    x, y = marks.log_x("rate", "firing rate (share of samples)"), alt.Y("share:Q", title="share of features")
    chart = chart.encode(x=x, y=y, color=marks.setting_colour(results), tooltip=marks.tips(table, *table.columns))
    yield Figure("firing-rates", "Firing rates", chart)


@section("Recovery against the number of samples")
def recovery_by_samples(results: RunResults) -> Parts:
    """Bars are 95 % intervals; dashed grey is chance. A line for each combination of what else was swept."""
    path, settings = "samples.n", results.settings
    if path not in settings or settings[path].nunique() < 2 or not pd.api.types.is_numeric_dtype(settings[path]):
        return
    others = [column for column in settings.columns[3:] if column != path]
    rest = settings[others].astype(str).agg(", ".join, axis=1) if others else "all"
    keys = settings[["setting"]].assign(samples=settings[path], rest=rest)
    for metric in ("mmcs", "recovered"):
        frame = marks.with_words(results.of_metric(metric), metric).merge(keys, on="setting")
        if len(frame):
            colour = marks.colours("rest", dict.fromkeys(frame["rest"]))
            chart = marks.lines(frame, marks.log_x("samples", "samples fitted to"), axis_title(metric), colour)
            yield Figure(f"samples-{metric}", describe(metric).label, chart)


@section("Does it come again?")
def stability(results: RunResults) -> Parts:
    """How much of a dictionary another seed finds too, and whether what is stable is true."""
    if {"stability", "truth_cosine"} <= set(results.features.columns):
        frame = marks.of_drawn(results, results.features)[["label", "feature", "stability", "truth_cosine"]].dropna()
        x = alt.X("stability:Q", title="cosine with its match from another seed")
        y = alt.Y("truth_cosine:Q", title="best cosine with a planted feature")
        chart = marks.dots(frame, x, y, marks.setting_colour(results))
        yield Figure("stability", "Stable and true", chart, "Each dot is a learned feature.")
    yield from metric_figures(results, ("stability", "stable", "stability_codes"), "stability")
