"""Figures of runs that train dictionaries: grids, Pareto fronts, mechanisms at equal L0, the published runs."""

from collections.abc import Iterator
from functools import partial
from itertools import count, islice

import altair as alt
import numpy as np
import pandas as pd

from unbraid.config import JsonDict, flatten, merge, read_toml
from unbraid.figures import marks
from unbraid.figures.figure import PUBLISHED, Figure, Parts, section
from unbraid.figures.scores import metric_figures, metric_section, thinned
from unbraid.figures.words import axis_title, describe
from unbraid.metrics.intervals import Path, Paths, compare, shared_l0
from unbraid.results import RunResults

STRENGTHS = ("mechanisms.sparsity.weight", "dictionary.activation.k")
"""What may be swept to make paths of L0."""
COMPARED = ("mmcs", "recovered", "f1", "explained_variance", "correlation", "absorption", "dead", "loss_recovered")
SIZE, WEIGHT = "dictionary.d_sae", STRENGTHS[0]
TEN = (*("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"), "#8C6D1F", "#882255", "#999999")


@section("The grid")
def grid(results: RunResults) -> Parts:
    """Mean over replicates, by size and sparsity, or the two settings that were swept most finely."""
    swept = [path for path in results.settings.columns[3:] if results.settings[path].nunique() > 1]
    swept = sorted(swept, key=lambda path: (path not in (SIZE, WEIGHT), -results.settings[path].nunique()))
    if len(swept) < 2 or len(results.labels) < 6:
        return []
    axes = [SIZE, WEIGHT] if {*swept[:2]} == {SIZE, WEIGHT} else swept[:2]
    return islice(_grids(results, axes, swept[2:]), 12)


def _grids(results: RunResults, axes: list[str], rest: list[str]) -> Iterator[Figure]:
    """A grid for each metric and combination of the rest of what was swept."""
    number = count()
    for values, group in results.settings.groupby(rest, sort=False) if rest else [((), results.settings)]:
        where = f", {marks.short(', '.join(map(str, values)))}" if rest else ""
        panel = _published_panel(results, group) if axes == [SIZE, WEIGHT] else {}
        for metric in ("mmcs", "reconstruction_error", "dead"):
            frame = group.merge(results.of_metric(metric)[["setting", "value"]], on="setting").sort_values(axes)
            for side, axis in zip(("down", "across"), axes, strict=True):
                frame[side] = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in frame[axis]]
            cells, theirs = zip(frame["down"], frame["across"], strict=True), _published_cells(panel, metric)
            frame["published"] = [theirs.get(cell, np.nan) for cell in cells]
            if len(frame):
                titles = (*(axis.rpartition(".")[2] for axis in axes), describe(metric).label)
                yield from _grid_figures(f"grid-{metric}-{next(number)}", frame, titles, where, panel.get("label", ""))


def _grid_figures(
    name: str, frame: pd.DataFrame, titles: tuple[str, str, str], where: str, label: str
) -> Iterator[Figure]:
    """Ours; and in the same colours what the study shows in the same cells."""
    both, words = frame[["value", "published"]].stack(), "reconstruction_error" not in name
    draw = partial(marks.heatmap, titles=titles, domain=(float(both.min()), float(both.max())), cell=48, words=words)
    theirs = frame.dropna(subset=["published"]).rename(columns={"value": "ours", "published": "value"})
    if theirs.empty:
        yield Figure(name, f"{titles[2]}{where}", draw(frame.drop(columns="published")))
    else:
        yield Figure(name, f"{titles[2]}{where}: ours", draw(frame), "Published values under the pointer.")
        said = f"As read off the source's figure, which calls this generator “{label}”."
        yield Figure(f"{name}-published", f"{titles[2]}{where}: published", draw(theirs), said)


def _published_panel(results: RunResults, group: pd.DataFrame) -> JsonDict:
    """What the superposition study shows of the generator these settings have; nothing if world or loss is another."""
    source, ours = read_toml(PUBLISHED / "superposition.toml"), flatten(results.configs[group["label"].iloc[0]])
    for panel in source["panels"]:
        needed = {**source["conditions"], **flatten({"world": {"firing": panel["firing"]}})}
        if needed.items() <= ours.items():
            return {**panel, "columns": source["columns"]}
    return {}


def _published_cells(panel: JsonDict, metric: str) -> dict[tuple[str, str], float]:
    """The published values of a metric by size and weight, as axes write them."""
    return {
        (size, f"{weight:.3g}"): value
        for size, values in panel.get(metric, {}).items()
        for weight, value in zip(panel["columns"], values, strict=True)
    }


def _case(results: RunResults) -> pd.Series:
    """What each setting is called without its strength of sparsity."""
    names = [path for path in results.settings.columns[3:] if path not in STRENGTHS]
    said = results.settings[names].astype(str).agg(", ".join, axis=1) if names else "0"
    return pd.Series(said, results.settings.index).set_axis(results.settings["setting"])


def _strength(results: RunResults) -> str | None:
    return next((path for path in STRENGTHS if path in results.settings and results.settings[path].nunique() > 1), None)


def front(frame: pd.DataFrame, better: str) -> pd.DataFrame:
    """The settings that no other beats: as few features or fewer, and as good a score or better."""
    sign = -1.0 if better == "lower" else 1.0
    ordered = frame.assign(gain=sign * frame["value"]).sort_values(["L0", "gain"], ascending=[True, False])
    best = ordered["gain"].cummax()
    return ordered[(ordered["gain"] >= best) & (best > best.shift(fill_value=-np.inf))]


@section("Against L0")
def pareto_fronts(results: RunResults) -> Parts:
    """A score against how many features fire; lines follow a case along its strength of sparsity. Dark: the front,
    which no setting beats at as small an L0. Drag and wheel move and zoom.
    """
    l0, cases = results.of_metric("l0").set_index("setting")["value"], _case(results)
    for metric in [name for name in COMPARED if results.has_score(name)][:4] if len(results.labels) > 1 else []:
        frame = marks.with_words(results.of_metric(metric), metric)
        frame = frame.assign(L0=frame["setting"].map(l0), case=[marks.short(cases[s], 40) for s in frame["setting"]])
        frame = frame[frame["L0"] > 0].drop(columns=["chance"])
        few = frame["case"].nunique() <= 8
        colour = marks.colours("case", dict.fromkeys(frame["case"])) if few else marks.BLUE
        x, joined = marks.log_x("L0", axis_title("l0")), few and _strength(results) is not None
        chart = marks.lines(frame, x, axis_title(metric), colour, joined=joined)
        edge = alt.Chart(front(frame, describe(metric).better))
        edge = edge.mark_line(interpolate="step-after", color=marks.CEILING, strokeWidth=1.5, opacity=0.8)
        edge = edge.encode(x=x, y=alt.Y("value:Q", title=axis_title(metric), scale=alt.Scale(zero=False)))
        chart = alt.layer(edge, chart).add_params(alt.selection_interval(bind="scales"))
        yield Figure(f"pareto-{metric}", f"{describe(metric).label} against L0", chart)


def _paths(results: RunResults, settings: list[int], metric: str) -> Paths:
    """A score against L0, by replicate, through these settings."""
    found = results.scores[results.scores["setting"].isin(settings) & results.scores["metric"].isin(["l0", metric])]
    wide = found.pivot_table("value", ["replicate", "setting"], "metric").dropna()
    wide = wide[wide["l0"] > 0] if {"l0", metric} <= set(wide.columns) else wide.iloc[:0]
    points = {str(name): own[["l0", metric]].to_numpy().tolist() for name, own in wide.groupby(level=0)}
    return {name: Path.through([(l0, score) for l0, score in own]) for name, own in points.items()}


def _by_case(results: RunResults) -> dict[str, list[int]]:
    """The settings of each case along its strength of sparsity; nothing where there are no such paths."""
    if _strength(results) is None or "case" not in results.settings:
        return {}
    return {str(name): own["setting"].tolist() for name, own in results.settings.groupby("case", sort=False)}


def _additions(results: RunResults) -> Iterator[tuple[str, str, str]]:
    """What is added, and the cases with it and without it, as far as the run has them."""
    trees = results.config.get("cases", {})
    held = {name: frozenset(merge(results.config, tree).get("mechanisms", {})) for name, tree in trees.items()}
    meant = {name: own for name, own in held.items() if not name.startswith("published")}
    for ours, own in meant.items():
        for other, less in meant.items():
            if less < own and len(own - less) == 1 and (ours.startswith(("alone-", "run-")) or ours == "all"):
                yield next(iter(own - less)).replace("_", " "), ours, other


@section("What each mechanism adds at equal L0")
def mechanism_effects(results: RunResults) -> Parts:
    """The case with the mechanism minus the one without, at the L0 both reach, paired by seed, with 95 % intervals."""
    by_case = _by_case(results)
    for metric in [name for name in COMPARED if results.has_score(name)][:4]:
        found = []
        for added, ours, other in _additions(results):
            if {ours, other} <= set(by_case):
                both = compare(*(_paths(results, by_case[name], metric) for name in (ours, other)))
                if both.difference is not None:
                    mean = both.difference.estimate
                    bounds = mean.interval or (np.nan, np.nan)
                    found.append((f"{added} ({ours})", other, mean.value, *bounds, both.verdict))
        if found:
            columns = ["label", "reference_label", "value", "low", "high", "verdict"]
            chart = marks.difference_rows(pd.DataFrame(found, columns=columns), metric, " at equal L0")
            yield Figure(f"effects-{metric}", describe(metric).label, chart)


def _at_equal_l0(results: RunResults, metric: str, name: str) -> Iterator[Figure]:
    """Each case at one L0, between two of its strengths of sparsity; a case that does not reach it has no row."""
    paths = {case: _paths(results, settings, metric) for case, settings in _by_case(results).items()}
    l0 = shared_l0(paths)
    found = [(case, path.at(l0)) for case, own in paths.items() for path in own.values()] if l0 is not None else []
    values = pd.DataFrame(found, columns=["label", "value"])
    reached = values.groupby("label", sort=False).filter(lambda own: own["value"].notna().all())
    if len(reached):
        scores = results.of_metric(metric).merge(results.settings[["setting", "case"]], on="setting")
        levels = scores.groupby("case")[["chance", "ceiling"]].mean()
        frame, where = marks.mean_curves(reached, by=(), x="label").join(levels, on="label"), f" at L0 {l0:.3g}"
        caption = f"{len(frame)} of {len(paths)} cases reach this L0 with every seed. Chance is at whatever L0 it has."
        chart = marks.rows(frame, metric, title=axis_title(metric) + where)
        yield Figure(f"{name}-equal-l0", describe(metric).label + where, chart, caption)


def _with_equal_l0(results: RunResults, name: str, *metrics: str) -> Parts:
    yield from _at_equal_l0(results, metrics[0], name)
    if 1 < len(results.labels) <= 60:
        yield from metric_figures(results, metrics, name)


@section("Absorption")
def absorption(results: RunResults) -> Parts:
    """How often a child's feature fires in the place of its parent's. It falls as L0 rises: compare only at equal L0.
    SAEBench warns that small or undertrained dictionaries score deceptively low.
    """
    return _with_equal_l0(results, "absorption", "absorption", "absorption_fraction", "letter_absorption")


@section("Features that fire alike")
def feature_correlations(results: RunResults) -> Parts:
    """The truth has some correlation too: that is its ceiling."""
    return _with_equal_l0(results, "correlations", "correlation", "mean_correlation", "redundancy")


metric_section("dead_features", "Dead features", "Features that fire on none of the fresh samples.", "dead")


@section("On the language model")
def sparse_probing(results: RunResults) -> Parts:
    """Loss recovered by spliced reconstructions, and probes on few features."""
    scores = results.run.on_language_model()
    settings = scores.get("settings", [])[:6]
    raw, found = scores.get("baselines", {}).get("raw activations", {}), []
    for label, metrics in [*((one["label"], one["metrics"]) for one in settings), ("raw activations", raw)]:
        found += [(label, *_probe(card, name)) for name, card in metrics.items() if name.startswith("probe_")]
    columns = ["label", "k", "value", "low", "high", "chance"]
    frame = pd.DataFrame(found, columns=columns).dropna(subset=["value"])
    if len(frame):
        order = sorted(set(frame["k"]), key=lambda k: (not k.isdigit(), int(k) if k.isdigit() else 0))
        x = alt.X("k:O", sort=order, title="k, features the probe reads", axis=alt.Axis(labelAngle=0))
        names = [*(one["label"] for one in settings), "raw activations"]
        colour = marks.colours("label", names, (*TEN[: len(settings)], marks.CEILING))
        chart = marks.lines(marks.with_words(frame, "probe_1"), x, "test accuracy (share)", colour)
        caption = "Logistic probes on the k features that differ most between a class and the others; bars are 95 % "
        caption += "intervals, dashed grey a random dictionary (chance), “raw activations” the same on coordinates."
        yield Figure("probing", "Accuracy of sparse probes against k", chart, caption)
    yield from metric_figures(results, ("loss_recovered",), "probing")


def _probe(card: JsonDict, name: str) -> tuple[str, float | None, float | None, float | None, float | None]:
    """k, accuracy, its interval (over replicates, or from one ± 1.96 errors of the texts) and chance."""
    value, error = card["value"], card.get("error")
    around = (None, None) if error is None else (value - 1.96 * error, value + 1.96 * error)
    low, high = card.get("interval") or around
    return name.removeprefix("probe_"), value, low, high, card.get("chance")


def _runs(results: RunResults) -> pd.DataFrame:
    """The settings of a cumulative ablation, `run-0`, `run-1` …, at the middle strength of sparsity; maybe none."""
    if "case" not in results.settings:
        return results.settings.iloc[:0]
    runs = results.settings[results.settings["case"].astype(str).str.fullmatch(r"run-\d+")]
    strength = _strength(results)
    if strength is None or not len(runs):
        return runs
    return runs[runs[strength] == sorted(runs[strength].unique())[runs[strength].nunique() // 2]]


@section("The runs of the mechanisms study side by side")
def published_runs(results: RunResults) -> Parts:
    """Each run adds one mechanism to the one before. First the four figures that the study describes, with the axes it
    names; then other scores. Means over seeds with 95 % intervals.
    """
    runs = _runs(results)
    if len(runs) < 3:
        return
    curves, features = (frame[frame["setting"].isin(runs["setting"])] for frame in (results.curves, results.features))
    terms = curves[curves["quantity"].str.startswith("loss: ")]
    seeds = ["label", "replicate"]
    loss = terms.groupby([*seeds, "step"], sort=False)["value"].sum().reset_index()
    sizes = features.groupby(seeds).size().rename("size").reset_index()
    zeros = curves[curves["quantity"] == "l0"].merge(sizes, on=seeds)
    zeros = zeros.assign(value=1 - zeros["value"] / zeros["size"])
    usage = features.assign(rank=features.groupby(seeds)["density"].rank(ascending=False, method="first"))
    usage = usage.assign(value=usage["density"].astype(float))
    drawn = (
        ("training_curves", thinned(loss), "step", "training steps", "total loss (reconstruction + penalties)"),
        ("sparsity_evolution", thinned(zeros), "step", "training steps", "sparsity (proportion of zero activations)"),
        ("feature_usage", usage, "rank", "feature index (sorted by usage)", "usage frequency (share of samples)"),
    )
    for name, frame, x, across, up in drawn:
        means, colour = marks.mean_curves(frame, x=x), marks.colours("label", runs["label"], TEN)
        if len(means):
            chart = marks.lines(means, alt.X(f"{x}:Q", title=across), up, colour, band=True)
            yield Figure(f"published-{name}", up.partition(" (")[0].capitalize(), chart)
    for metric in [name for name in ("mean_correlation", "zeros", "loss", *COMPARED) if results.has_score(name)][:8]:
        scores = results.of_metric(metric)
        chart = marks.interval_rows(results, metric, scores[scores["setting"].isin(runs["setting"])])
        yield Figure(f"published-{metric}", describe(metric).label, chart, describe(metric).sentence)
