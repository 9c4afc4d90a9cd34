"""Figures of trained models: accuracy by task and beside the published one, attention and support, routes, text."""

from collections.abc import Iterator

import altair as alt
import numpy as np
import pandas as pd

from unbraid.config import JsonDict, flatten, read_toml
from unbraid.figures import marks
from unbraid.figures.figure import PUBLISHED, Figure, Parts, Table, section
from unbraid.figures.scores import (
    MARGIN,
    at_equal_accuracy,
    curve_figures,
    equally_accurate,
    metric_figures,
    metric_section,
)
from unbraid.figures.words import MISSING, describe, estimate, number
from unbraid.results import RunResults

DIVERSITY = ("mean_distance", "mean_deviation", "transport_effect", "kl_std", "frame_deviation")
UNREAD = "without the question"
AT_EQUAL = ("phi", "phi_share", "probe", "dci_disentanglement", "factors_recovered")
"""What is compared at equal accuracy."""
CONCEPTS = ("recovered", "split", "absorbed", "merged", "missed")
FEATURES = ("match", "duplicate", "mixture", "spurious", "dead")


def _of_first(results: RunResults, name: str, key: str) -> dict[str, JsonDict]:
    """What these notes of each setting's first replicate say under this key, by setting."""
    stacks = {label: results.first_member(index)[0] for index, label in enumerate(results.labels)}
    found = {label: results.notes(stack, name).get(key) for label, stack in stacks.items()}
    return {label: own for label, own in found.items() if own}


@section("Accuracy by task")
def task_scores(results: RunResults) -> Parts:
    """Light tick: chance. Of accuracy that is the best of a few shortcuts that do not read the question."""
    shortcuts = _of_first(results, "stories", "shortcuts")
    unread = {label: found[UNREAD] for label, found in shortcuts.items() if UNREAD in found}
    yield from metric_figures(results, ("accuracy",), "task", unread, f"the best that is possible {UNREAD}")
    yield from metric_figures(results, ("support_best", "capped_steps_to_95"), "task")
    scores = pd.DataFrame(shortcuts.values(), list(shortcuts)).map(lambda score: number("accuracy", score))
    if len(scores):  # settings of one world stand in one row
        worlds = scores.groupby(list(scores), sort=False).groups.items()
        rows = [["; ".join(labels), *found] for found, labels in worlds]
        yield Table(("settings", *scores), rows, "What shortcuts score", folded=True)


@section("The table of the head-constraints study, run again")
def published_accuracy(results: RunResults) -> Parts:
    """Orange: what the study reports of one model, with twice the standard error of its 1,000 test questions."""
    source = read_toml(PUBLISHED / "head_constraints.toml")
    theirs = _like_the_study(results, source)
    if len(theirs):
        error = 2 * np.sqrt(theirs["value"] * (1 - theirs["value"]) / source["questions"])
        theirs = theirs.assign(low=theirs["value"] - error, high=theirs["value"] + error)
        ours = marks.interval_rows(results, "accuracy", results.of_metric("accuracy").query("label in @theirs.label"))
        chart = alt.layer(ours, marks.rows(theirs, "accuracy", colour=alt.ColorValue(marks.COLOURS[1])))
        yield Figure("published-accuracy", "Ours (blue) and the study's (orange)", chart)


def _like_the_study(results: RunResults, source: JsonDict) -> pd.DataFrame:
    """The cases that are trained as the study's experiments of the same name were."""
    rows = []
    for setting in results.settings.to_dict("records"):
        label, name = setting["label"], str(setting.get("case", ""))
        needed = {**source["conditions"], **source["sizes"].get(name, {})}
        if name in source["accuracy"] and needed.items() <= flatten(results.configs[label]).items():
            rows.append((label, source["accuracy"][name]))
    return pd.DataFrame(rows, columns=["label", "value"])


@section("Attention and support")
def attention_and_support(results: RunResults) -> Parts:
    """Each dot is a head of the last layer of a replicate: its attention on the supporting facts at the question's end,
    against its entropy (1 is uniform). Dashed: a head that attends to all alike.
    """
    frame = results.heads
    if not {"support", "attention_entropy"} <= set(frame.columns):
        return
    columns = ["label", "replicate", "head", "attention_entropy", "support"]
    last = frame["layer"] == frame.groupby("setting")["layer"].transform("max")
    frame = marks.of_drawn(results, frame[last])[columns].dropna().astype(dict.fromkeys(columns[3:], float))
    x = marks.log_x("attention_entropy", "attention entropy (share of the largest)")
    y = alt.Y("support:Q", title="attention on the supporting facts (share)", scale=alt.Scale(domain=[0, 1]))
    alike = _uniform(results)
    uniform = (
        alt.Chart(alike).mark_rule(strokeDash=[4, 3]).encode(y=alt.Y("uniform:Q"), color=marks.setting_colour(results))
    )
    heads = marks.dots(frame, x, y, marks.setting_colour(results))
    chart = alt.layer(uniform.encode(tooltip=marks.tips(alike, *alike)), heads)
    yield Figure("support", "Heads that attend to the supporting facts", chart)


def _uniform(results: RunResults) -> pd.DataFrame:
    """Of each drawn setting the share that uniform attention has on the supporting facts, mean over replicates."""
    members = results.members[results.members["setting"].isin(results.drawn)]
    values = [float(results.arrays(row.stack)["uniform"][row.member]) for row in members.itertuples()]
    return members.assign(uniform=values).groupby("label", sort=False)["uniform"].mean().round(4).reset_index()


@section("Routes")
def routing(results: RunResults) -> Parts:
    """Where tokens choose their heads: how evenly heads and experts are used."""
    if "usage" in results.heads and results.heads["usage"].notna().any():
        yield _usage(results)
    yield from metric_figures(results, ("routing_evenness", "expert_evenness", "least_used_head_drop"), "route")


def _usage(results: RunResults) -> Figure:
    frame, place = marks.of_drawn(results, results.heads).dropna(subset=["usage"]), ["label", "replicate", "layer"]
    ranked = frame.groupby(place)["usage"].rank(ascending=False, method="first").astype(int)
    frame = frame[[*place, "head", "usage"]].assign(rank=ranked, alike=frame.groupby(place)["usage"].transform("mean"))
    x = alt.X("rank:O", title="heads, most used first")
    base = alt.Chart(width=170, height=160).encode(x=x, color=marks.setting_colour(results))
    y = alt.Y("usage:Q", title="share of tokens", scale=alt.Scale(domain=[0, 1]))
    shares = base.mark_line(point=True, opacity=0.7)
    shares = shares.encode(y=y, detail=alt.Detail("replicate:N"), tooltip=marks.tips(frame, *frame))
    alike = base.mark_line(strokeDash=[4, 3], strokeWidth=1).encode(y=alt.Y("mean(alike):Q", title="share of tokens"))
    chart = alt.layer(alike, shares, data=frame).facet(alt.Column("layer:O", title="layer"))
    caption = "A line a replicate. Dashed: the same use of every head."
    return Figure("route-usage", "Share of tokens that are routed to each head", chart, caption, wide=True)


@section("Prediction")
def perplexity(results: RunResults) -> Parts:
    """Light tick, chance: counting single tokens in the training part."""
    counted = _of_first(results, "texts", "bigram")
    for metric in ("perplexity", "bits_per_character"):
        pairs = {label: found[metric] for label, found in counted.items() if metric in found}
        yield from metric_figures(results, (metric,), "text", pairs, "counting pairs of tokens (bigrams)")


@section("How the models write")
def text_samples(results: RunResults) -> Parts:
    """The first replicate of each setting continues a prompt."""
    samples = [
        (first.label, sample["prompt"], sample["text"])
        for first in results.firsts()
        if (sample := results.notes(first.stack, "texts").get("samples", {}).get(str(first.member)))
    ]
    columns = ("setting", "prompt", "continuation")
    if samples:
        yield Table(columns, samples, "Samples", words=columns[1:], folded=True)


@section("Diversity over training")
def diversity(results: RunResults) -> Parts:
    """Gauge models: distances of beliefs, and how much transport moves them."""
    return curve_figures(results, {name: name.replace("_", " ").replace("kl", "KL") for name in DIVERSITY})


@section("At equal accuracy")
def equal_accuracy(results: RunResults) -> Parts:
    """Settings are compared only where their models answer equally well."""
    frame, equal = at_equal_accuracy(results.differences), equally_accurate(results.differences)
    metrics = [metric for metric in AT_EQUAL if metric in set(frame["metric"])]
    if not metrics or "accuracy" not in set(frame["metric"]):
        return
    said = {
        (row.setting, row.metric): f"{row.verdict}: {estimate(row.metric, row.value, row.low, row.high, True)}"
        for row in frame.itertuples()
    }
    rows = []
    for setting in dict.fromkeys(frame["setting"]):
        cells = [said.get((setting, metric), MISSING) for metric in metrics]
        rows.append([results.labels[setting], "equal" if setting in equal else "not known to be equal", *cells])
    columns = ("setting", "accuracy", *(describe(metric).label for metric in metrics))
    title = f"Accuracy is equal where its whole interval lies within ±{MARGIN:g}."
    yield Table(columns, rows, title, words=columns[1:])


@section("Recovery of the planted factors")
def factor_recovery(results: RunResults) -> Parts:
    """φ of each factor's best single feature. Light tick: a random dictionary. Dark tick: a linear probe on the same
    activations.
    """
    yield from metric_figures(results, ("phi",), "factor")
    yield from _by_factor(results, "phi")


def _by_factor(results: RunResults, metric: str) -> Iterator[Figure]:
    """Settings down, factors across, the mean of the metric as colour and number."""
    frame = results.of_family(metric).rename(columns={"label": "down", "of": "across"})
    if len(frame):
        label = describe(metric).label
        ends = min(0.0, float(frame["value"].min())), max(1.0, float(frame["value"].max()))
        chart = marks.heatmap(marks.with_words(frame, metric), ("setting", "factor", label), ends, 64)
        caption = "Means over replicates; interval, chance and ceiling under the pointer."
        yield Figure(f"{metric}-factors", f"{label} by factor", chart, caption, wide=True)


@section("Concepts and features")
def concept_matching(results: RunResults) -> Parts:
    """What became of every concept, and what every feature is."""
    shares = (("factors", "share of concepts", CONCEPTS), ("features", "share of features", FEATURES))
    for prefix, title, verdicts in shares:
        frame = results.of_metric(*(f"{prefix}_{name}" for name in verdicts)).rename(columns={"value": "share"})
        if len(frame):
            frame = frame.assign(what=frame["metric"].str.removeprefix(f"{prefix}_"))[["label", "what", "share", "n"]]
            palette = (*marks.COLOURS[: len(verdicts) - 1], marks.GREY)
            chart = marks.stacked(results, frame, verdicts, palette, title)
            yield Figure(f"shares-{prefix}", title.capitalize(), chart, wide=marks.wide(results.labels))


metric_section(
    "disentanglement",
    "Disentanglement",
    "Light tick, chance: the same code with the factors' rows permuted.",
    *("dci_disentanglement", "dci_completeness", "dci_informativeness", "modularity", "mig", "sap"),
)


@section("Causal effects")
def causal(results: RunResults) -> Parts:
    """The feature of a planted factor is edited inside the model: how far the answer follows. Light tick, chance: other
    features that fire about as often. Dark tick, ceiling: the other story's activations patched in.
    """
    yield from metric_figures(results, ("causal",), "causal")
    yield from _by_factor(results, "causal")
    names = ("causal_doubled", "causal_probe", "causal_ablation", "causal_side", "causal_reconstruction")
    yield from metric_figures(results, names, "causal")


def gauge_profile(profiles: pd.DataFrame) -> Figure:
    """Time and memory of a training step by width, from the `profiles` of `unbraid profile gauge --json`."""
    names, panels = {"milliseconds": "time of a step (ms)", "mebibytes": "memory of a step (MiB)"}, []
    for column, title in names.items():
        frame = profiles[["model", "width"]].assign(value=profiles[column].astype(float)).query("value > 0")
        colour, x = marks.colours("model", dict.fromkeys(profiles["model"])), marks.log_x("width", "width (dimensions)")
        panels.append(marks.lines(frame, x, title, colour, log=True))
    return Figure("gauge-profile", "Cost of a training step", alt.hconcat(*panels), wide=True)
