"""Figures of sparse probing on a model: accuracy against how many features a probe may read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.config import JsonDict
from unbraid.reports.ablation import read_ablation
from unbraid.reports.canvas import GREY, HEIGHT, INK, Figure, Section, Style, blank, handle, key, name_axes, png, short
from unbraid.reports.methods import method_style
from unbraid.reports.pareto_figures import highlighted
from unbraid.reports.run_results import RunResults

PROBE, FULL = "probe_", "full"
MOST = 6
TWO_SIDED = 1.96
RAW, RANDOM = Style(INK, "-", "x"), Style(GREY, "--", "")


@dataclass(frozen=True)
class Line:
    """Accuracies by k, and their 95 % intervals where there are any; `full` is all features."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]


def probing(results: RunResults) -> Section:
    """One figure, where `unbraid evaluate` has probed labelled texts."""
    scores = results.language_model
    found = {one["label"]: probe_line(one["metrics"]) for one in chosen(results)}
    drawn = {label: line for label, line in found.items() if line.values}
    figures = [_figure(results, drawn)] if drawn else []
    data = ", ".join(scores.get("probes", {})) or "labelled texts"
    amount = len(scores.get("settings", []))
    some = f" Drawn: {len(drawn)} of {amount} settings; language_model.json has all." if len(drawn) < amount else ""
    caption = (
        f"Accuracy (y) of a logistic probe on the k features that differ most between a class and the others (x; last: "
        f"all features), mean over classes and data sets ({data}), on {scores.get('model', 'a model')}, "
        f"{scores.get('site', '')}. Bars: 95 % intervals over seeds, or from one seed over texts. Raw: the same probe "
        "on coordinates of the activations themselves. Random: on a random dictionary of the same size, which is what "
        f"to beat; a probe that knows nothing has ½.{some}"
    )
    return Section("Probing against k", caption, figures)


def chosen(results: RunResults) -> list[JsonDict]:
    """The evaluated settings to draw: all, or the highlighted cases at their middle strength, or the first few."""
    settings = results.language_model.get("settings", [])
    ablation = read_ablation(results)
    if len(settings) > MOST and ablation:
        middles = [case.middle.swept for case in highlighted(ablation)]
        settings = [one for one in settings if one["setting"] in middles]
    return settings[:MOST]


def probe_line(metrics: Mapping[str, JsonDict]) -> Line:
    """From scores by name; the interval is over replicates, or from one replicate ± 1.96 errors of the texts."""
    own = {name.removeprefix(PROBE): card for name, card in metrics.items() if name.startswith(PROBE)}
    values = {k: card["value"] for k, card in own.items() if card["value"] is not None}
    intervals: dict[str, tuple[float, float]] = {}
    for k, value in values.items():
        bounds, error = own[k].get("interval"), own[k].get("error")
        if bounds is not None:
            intervals[k] = (bounds[0], bounds[1])
        elif error is not None:
            intervals[k] = (value - TWO_SIDED * error, value + TWO_SIDED * error)
    return Line(values, intervals)


def _random(settings: Sequence[JsonDict]) -> Line:
    """The mean over these settings of what random dictionaries of their size have."""
    found: dict[str, list[float]] = {}
    for one in settings:
        for name, card in one["metrics"].items():
            if name.startswith(PROBE) and card["chance"] is not None:
                found.setdefault(name.removeprefix(PROBE), []).append(card["chance"])
    return Line({k: sum(each) / len(each) for k, each in found.items()}, {})


def _figure(results: RunResults, drawn: Mapping[str, Line]) -> Figure:
    raw = probe_line(results.language_model["baselines"]["raw activations"])
    random = _random(chosen(results))
    places = _places([*drawn.values(), raw])
    figure, axes = blank(results.source, height=HEIGHT + 0.4 + 0.2 * len(drawn))
    handles = [_draw(axes, method_style(at), label, line, places) for at, (label, line) in enumerate(drawn.items())]
    beside = [(raw, RAW, "raw activations"), (random, RANDOM, "random dictionary")]
    handles += [_draw(axes, how, label, line, places) for line, how, label in beside if line.values]
    handles.append(axes.axhline(0.5, color=GREY, linestyle=":", linewidth=1.4, label="knows nothing"))
    axes.set_xticks(list(places.values()), ["all" if k == FULL else k for k in places])
    axes.set_ylim(min([0.48, *[value for line in drawn.values() for value in line.values.values()]]), 1.0)
    name_axes(axes, "Sparse probing against k", "k, features the probe reads", "test accuracy (1 is perfect)")
    key(figure, handles)
    lines = {**drawn, "raw activations": raw, "random dictionary": random}
    described = "; ".join(f"{label} {_described(line, places)}" for label, line in lines.items() if line.values)
    return Figure("probing", png(figure), f"Accuracy of probes against how many features they read: {described}.")


def _places(lines: Sequence[Line]) -> dict[str, int]:
    """Where each k is drawn: evenly, smallest first, all features last."""
    every = {k for line in lines for k in line.values}
    ordered = sorted(every, key=lambda k: (k == FULL, 0 if k == FULL else int(k)))
    return {k: place for place, k in enumerate(ordered)}


def _draw(axes: Axes, drawn: Style, label: str, line: Line, places: Mapping[str, int]) -> Line2D:
    known = [k for k in places if k in line.values]
    x, y = [places[k] for k in known], [line.values[k] for k in known]
    axes.plot(x, y, color=drawn.colour, linestyle=drawn.dashes, marker=drawn.marker, markersize=5, linewidth=2)
    for k, bounds in line.intervals.items():
        axes.plot([places[k]] * 2, bounds, color=drawn.colour, linewidth=2.4, alpha=0.5)
    return handle(drawn, short(label), marker=True)


def _described(line: Line, places: Mapping[str, int]) -> str:
    return ", ".join(f"{line.values[k]:.3f} at {k}" for k in places if k in line.values)
