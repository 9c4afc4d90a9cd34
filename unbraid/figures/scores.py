"""Figures and tables of scores that every kind of run has: scores by setting, differences, curves of training."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import altair as alt
import pandas as pd

from unbraid.figures.figure import Figure, Parts, Table, section
from unbraid.figures.marks import ROW, beside, curves, difference_rows, interval_rows, mean_curves, shared_levels, wide
from unbraid.figures.words import axis_title, describe, in_order, interval, number
from unbraid.results import RunResults

MAIN = (
    *("phi", "phi_share", "mmcs", "mcc", "recovered", "f1", "explained_variance", "l0", "dead"),
    *("loss_recovered", "probe_1", "evenness", "hopkins", "accuracy", "support_best", "attention_entropy"),
    *("perplexity", "bits_per_character", "row_std", "sharpness"),
)
"""The scores that are shown at once; the rest is folded away."""
MOST_FIGURES, MOST_ROWS = 4, 60
MOST_POINTS = 40
"""Of a curve, at most."""
NO_VERDICT = "no verdict"
MARGIN = describe("accuracy").least_difference or 0.0
"""Accuracies whose difference lies within ± this are equal."""
LOGGED = ("mmcs", "accuracy", "perplexity", "l0")
HOW = "Dots are means over replicates, lines their 95 % intervals, faint dots replicates. Chance is the light tick, "
HOW += "the ceiling the dark one."


def metric_figures(
    results: RunResults, metrics: Iterable[str], name: str, extra: dict[str, float] | None = None, what: str = ""
) -> Iterator[Figure]:
    """A figure for each of these metrics that the run has, a row a setting; `extra` is one more number of each."""
    for metric in metrics:
        if len(results.of_metric(metric)):
            record, chart = describe(metric), interval_rows(results, metric)
            chart = alt.layer(chart, beside(extra, what, metric)) if extra else chart
            caption = f"{record.sentence[:1].upper()}{record.sentence[1:]}.{f' Diamond: {what}.' if extra else ''}"
            yield Figure(f"{name}-{metric}", record.label, chart, caption, wide(results.labels))


def metric_section(name: str, heading: str, text: str, *metrics: str) -> None:
    """Register a section that is rows of these metrics, and nothing else."""

    def parts(results: RunResults) -> Parts:
        return metric_figures(results, metrics, name) if len(results.labels) <= MOST_ROWS else []

    section(heading, text, name)(parts)


def main_metrics(results: RunResults) -> list[str]:
    """Those of the main scores that the run has, the leading one first."""
    return list(dict.fromkeys([results.leading, *(metric for metric in MAIN if results.has_score(metric))]))


@section("Scores", HOW)
def score_figures(results: RunResults) -> Parts:
    known = [metric for metric in main_metrics(results) if len(results.of_metric(metric))]
    return metric_figures(results, known[: 1 if len(results.labels) * ROW > 1600 else MOST_FIGURES], "scores")


@section("All scores")
def all_scores(results: RunResults) -> Parts:
    columns = ("score", "setting", "mean", "95 % interval", "chance", "ceiling")
    rows: dict[str, list[list[str]]] = {metric: [] for metric in in_order(results.summary["metric"])}
    for row in results.of_metric(*rows).sort_values("setting").itertuples():
        bounds = (interval(row.metric, row.low, row.high), *(number(row.metric, v) for v in (row.chance, row.ceiling)))
        rows[row.metric].append([describe(row.metric).label, row.label, number(row.metric, row.value), *bounds])
    if len(results.labels) <= 24:
        first = [row for metric in main_metrics(results)[:3] for row in rows.get(metric, [])]
        yield Table(columns, first, words=columns[1:2])
    yield Table(columns, list(chain(*rows.values())), "Every score", words=columns[1:2], folded=True)


@section("Differences")
def differences(results: RunResults) -> Parts:
    """Each setting minus the one it is compared with, paired by replicate. A verdict is given where the 95 % interval
    leaves out 0; of twenty comparisons about one is called by luck alone.
    """
    compared = dict(iter(results.differences.groupby("metric")))
    drawn = [metric for metric in main_metrics(results) if metric in compared]
    for metric in drawn[: 2 if len(results.labels) <= MOST_ROWS else 0]:
        title, chart = f"Difference in {describe(metric).label}", difference_rows(compared[metric], metric)
        caption = "Mean over pairs and its 95 % interval; dashed: no difference."
        yield Figure(f"difference-{metric}", title, chart, caption, wide(results.labels))
    rows = [
        [
            *(describe(metric).label, f"{row.label} − {row.reference_label}"),
            *(number(metric, row.value, True), interval(metric, row.low, row.high, True)),
            *(str(row.pairs), row.verdict),
        ]
        for metric in in_order(compared)
        for row in compared[metric].itertuples()
    ]
    columns = ("score", "settings", "difference", "95 % interval", "pairs", "verdict")
    if rows:
        yield Table(columns, rows, "Every paired difference", words=("settings", "verdict"), folded=True)


def equally_accurate(differences: pd.DataFrame) -> set[int]:
    """The settings whose models are known to answer as well as those they are compared with."""
    accuracy = differences[differences["metric"] == "accuracy"]
    return set(accuracy[(accuracy["low"] >= -MARGIN) & (accuracy["high"] <= MARGIN)]["setting"])


def at_equal_accuracy(differences: pd.DataFrame, leading: str = "") -> pd.DataFrame:
    """The differences, without verdicts where models are not known to answer equally well, if that is asked of them."""
    of_accuracy = differences["metric"] == "accuracy"
    if leading == "accuracy" or not of_accuracy.any():
        return differences
    judged = differences["setting"].isin(equally_accurate(differences)) | of_accuracy
    return differences.assign(verdict=differences["verdict"].where(judged, NO_VERDICT))


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """At most `MOST_POINTS` steps, evenly drawn."""
    steps = sorted(frame["step"].unique())
    kept = steps[:: -(-len(steps) // MOST_POINTS)] if steps else []
    return frame[frame["step"].isin([*kept, *steps[-1:]])]


def curve_figure(
    results: RunResults,
    frame: pd.DataFrame,
    name: str,
    title: str,
    axis: str = "",
    levels: Sequence[alt.LayerChart] = (),
) -> Iterator[Figure]:
    """Values against training steps, columns label, step and value; nothing where there is only one step."""
    means = mean_curves(thinned(frame))
    if means["step"].nunique() > 1:
        least = float(means["value"].min())
        log = bool(least > 0 and means["value"].max() > 30 * least)
        means = means.assign(low=means["low"].clip(least / 2)) if log else means
        chart = alt.layer(curves(results, means, axis or title, log_y=log), *levels)
        yield Figure(name, title, chart)


def curve_figures(results: RunResults, titles: dict[str, str]) -> Iterator[Figure]:
    """A figure for each of these quantities that was logged more than once."""
    for name, title in titles.items():
        frame = results.curves[results.curves["quantity"] == name]
        levels = shared_levels(results, name) if name in LOGGED else []
        yield from curve_figure(results, frame, f"curve-{name.replace(': ', '-')}", title, levels=levels)


@section("Training")
def training_curves(results: RunResults) -> Parts:
    """Means over replicates with a band for the 95 % interval."""
    terms = [name for name in sorted(set(results.curves["quantity"])) if name.startswith("loss: ")]
    titles = {name: axis_title(name) for name in LOGGED}
    titles |= {name: f"{name.removeprefix('loss: ').replace('_', ' ')} loss" for name in terms}
    return islice(curve_figures(results, titles), 6)
