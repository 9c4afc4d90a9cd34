"""Figures of what happens while a dictionary trains: when truths are learned, moved and unlearned, and what dies."""

import altair as alt
import numpy as np
import pandas as pd

from unbraid.figures.figure import Figure, Parts, section
from unbraid.figures.marks import COLOURS, colours, curves, dots, image, mean_curves, short, tips
from unbraid.figures.scores import curve_figure
from unbraid.metrics.catalog import FOUND
from unbraid.results import RunResults

TRACKED = {
    "learned": "truths learned since the check before",
    "unlearned": "truths unlearned since the check before",
    "unlearned_same_entry": "truths unlearned without a change of entry",
    "moved": "truths found by another entry than before",
    "gain_learned": "change of representativeness of those learned",
    "gain_unlearned": "change of representativeness of those unlearned",
    "mean_change": "change of direction of those still found",
    "dead": "dead features",
}
UNITS = {"gain_learned": " (cosine)", "gain_unlearned": " (cosine)", "mean_change": " (1 − cosine)"}
EVENTS = {"learned": "circle", "moved": "diamond", "unlearned": "cross"}
MOST_CONCEPTS = 40
"""Rows of a timeline, drawn evenly from the most to the least frequent."""


@section("Learned and unlearned")
def tracking(results: RunResults) -> Parts:
    """A truth is found where some learned feature, its entry, has at least this cosine with it, its representativeness;
    each check is compared with the one before. Means over replicates with a band for the 95 % interval.
    """
    known = results.tracking
    cut = min(known["threshold"].dropna(), key=lambda threshold: abs(threshold - FOUND), default=FOUND)
    known = known[known["threshold"].isna() | (known["threshold"] == cut)]
    for quantity, title in TRACKED.items():
        frame = known[known["quantity"] == quantity]
        said = f"{title[:1].upper()}{title[1:]}{'' if frame['threshold'].isna().all() else f' (cosine ≥ {cut:g})'}"
        yield from curve_figure(results, frame, f"tracking-{quantity}", said, f"{title}{UNITS.get(quantity, '')}")
    unlearned = results.tracking[results.tracking["quantity"] == "unlearned"].dropna(subset=["threshold"])
    if len(unlearned):
        means = unlearned.groupby(["label", "replicate", "threshold"], sort=False)["value"].mean().reset_index()
        axes = ("truths unlearned at a check, on average", "threshold", "cosine from which a truth is found")
        chart = curves(results, mean_curves(means, x="threshold"), *axes)
        yield Figure("tracking-average-unlearned", "Average unlearned", chart, "By threshold.")


def events(best: np.ndarray, entry: np.ndarray) -> dict[str, np.ndarray]:
    """Where each truth was learned, found by another entry, or unlearned: checks × truths."""
    found = best >= FOUND
    before = np.vstack([np.zeros_like(found[:1]), found[:-1]])
    moved = found & before & (entry != np.roll(entry, 1, axis=0))
    return {"learned": found & ~before, "moved": moved, "unlearned": ~found & before}


@section(
    "Timelines",
    f"Best cosine of planted features at each check, drawn evenly from the most frequent to the least; dark is 1. "
    f"Marks: learned (it reaches {FOUND}), moved to another entry, unlearned.",
)
def timelines(results: RunResults) -> Parts:
    for index, label, stack, member, scored in results.firsts(4):
        tables, rates = results.arrays(stack, "tracking"), scored.get("probabilities", np.zeros(0))
        if tables and len(rates):
            ranked = np.argsort(-rates, kind="stable")
            shown = ranked[np.unique(np.linspace(0, len(ranked) - 1, min(MOST_CONCEPTS, len(ranked))).astype(int))]
            best, entry = (tables[name][member][:, shown] for name in ("best", "entry"))
            names = ([f"{rates[n]:.2g}" for n in shown], [str(step) for step in tables["steps"]])
            titles = ("how often it fires (share of samples)", "training step", "best cosine")
            chart = image(best.T, titles, (0.0, 1.0), names=names)
            marks = _marks(events(best, entry), tables["steps"], shown, entry)
            yield Figure(f"timeline-{index}", short(label), alt.layer(chart, marks))


def _marks(found: dict[str, np.ndarray], steps: np.ndarray, truths: np.ndarray, entry: np.ndarray) -> alt.Chart:
    """A mark for each event, in the middle of its cell."""
    rows = [
        (check + 0.5, row + 0.5, event, int(truths[row]), int(steps[check]), int(entry[check, row]))
        for event, table in found.items()
        for check, row in np.argwhere(table)
    ]
    frame = pd.DataFrame(rows, columns=["x", "y", "event", "planted feature", "step", "entry"])
    shape = alt.Shape("event:N", scale=alt.Scale(domain=list(EVENTS), range=list(EVENTS.values())), legend=None)
    marks = alt.Chart(frame).mark_point(filled=True, size=45, stroke="white", strokeWidth=0.7, opacity=1)
    colour = colours("event", EVENTS, (COLOURS[2], COLOURS[4], COLOURS[1]))
    return marks.encode(
        x=alt.X("x:Q"), y=alt.Y("y:Q"), color=colour, shape=shape, tooltip=tips(frame, *frame.columns[2:])
    )


@section("Embeddings")
def embeddings(results: RunResults) -> Parts:
    """Each dot is a sample, coloured by its strongest planted feature."""
    for index, label, _, member, tables in results.firsts(6):
        if f"points.{member}" not in tables:
            continue
        points = tables[f"points.{member}"]
        strongest = pd.Series(tables.get(f"strongest.{member}", np.zeros(len(points), dtype=int)))
        common = strongest.value_counts().index[:7]
        named = [f"feature {number}" if number in common else "others" for number in strongest]
        frame = pd.DataFrame({"x": points[:, 0], "y": points[:, 1], "strongest": named})
        colour = colours("strongest", [*sorted({*named} - {"others"}), "others"], (*COLOURS[: len(common)], "#cccccc"))
        bare = alt.Axis(labels=False, ticks=False)
        x, y = alt.X("x:Q", title="t-SNE 1", axis=bare), alt.Y("y:Q", title="t-SNE 2", axis=bare)
        yield Figure(f"embedding-{index}", short(label), dots(frame, x, y, colour))
