"""What a finished run prints: what was run, the headline, the comparisons that decide, and where the rest is."""

import shlex
from collections.abc import Sequence
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from unbraid.config import REPLICATE, REPLICATES, JsonDict
from unbraid.reports.configurations import flat_sweep, sweep_size
from unbraid.reports.equality import at_equal_accuracy, is_decided_by_accuracy
from unbraid.reports.phrases import setting_phrase
from unbraid.reports.run_results import RunResults, read_results
from unbraid.reports.summaries import summary_of
from unbraid.reports.words import MISSING, describe_metric, interval, number, seconds
from unbraid.storage.runs import Run

MOST_LINES = 24
"""The command prints one more: the path of the run."""
MOST_COMPARISONS = 5
HEADLINE_LINES = 4
HEADINGS = ("difference", "95 % interval", "pairs", "verdict")
FACTS = (
    ("world", "{world.kind} {world.task} {world.text} {world.model} {world.site}"),
    ("size", "{world.n_features:planted features} {world.dimensions:dimensions}"),
    (
        "model",
        "{model.kind} {model.layers:layers} {model.heads:heads} {model.d_model:wide} {model.training.steps:steps}",
    ),
    ("activations", "{activations.site} {activations.stories:stories}"),
    ("dictionary", "{dictionary.d_sae:features} {dictionary.activation} {training.steps:steps}"),
    ("baseline", "{baseline.kind}"),
    ("samples", "{samples.n}"),
)
"""Rows of the table of what was run: settings by their path, with a unit; what a run does not have is left out."""


def print_summary(run: Run) -> None:
    """At most 25 lines with the path that the command prints; the rest is `unbraid show`."""
    console = Console(highlight=False)
    title, *rest = summary_lines(read_results(run), console.width)
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(Text("\n".join(rest)), soft_wrap=True)


def summary_lines(results: RunResults, width: int) -> list[str]:
    """The lines to print, each cut to this width; comparisons are left out where there is no room for them."""
    rows = what_was_run(results)
    name_width = max(len(name) for name, _ in rows)
    facts = [_cut(f"{name:{name_width}}  {words}", width) for name, words in rows]
    headline = wrap(summary_of(results.facts).headline(results), width)
    if len(headline) > HEADLINE_LINES:
        headline = [*headline[: HEADLINE_LINES - 1], _cut(f"{headline[HEADLINE_LINES - 1]} …", width)]
    top = [_cut(results.title, width), *facts, "", *headline]
    path = results.run.path
    end = ["", f"report  {path / 'report.html'}", f"scores  unbraid show {shlex.quote(str(path))}"]
    return [*top, *_comparison_lines(results, width, MOST_LINES - len(top) - len(end)), *end]


def _comparison_lines(results: RunResults, width: int, room: int) -> list[str]:
    """A blank line, the comparisons, and a line on those left out; nothing where nothing was compared."""
    compared, others = deciding(results)
    shown = compared[: room - 3]
    if not shown:
        return []
    left_out = others + len(compared) - len(shown)
    more = [f"{left_out} more: unbraid show"] if left_out else []
    return ["", *_comparisons(results, shown, width), *more]


def _comparisons(results: RunResults, differences: Sequence[JsonDict], width: int) -> list[str]:
    """A heading and a line for each; what a setting is compared with stands in the heading where it is the same."""
    metric = results.leading
    labels = [(results.settings[one["setting"]].label, results.settings[one["reference"]].label) for one in differences]
    label, references = describe_metric(metric).label, dict.fromkeys(first for _, first in labels)
    several = len(references) > 1
    names = [f"{ours} minus {first}" if several else ours for ours, first in labels]
    rows = [
        (label if several else f"{label} minus {next(iter(references))}", HEADINGS),
        *((name, _cells(metric, one)) for name, one in zip(names, differences, strict=True)),
    ]
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(HEADINGS))]
    room = min(max(len(name) for name, _ in rows), width - sum(widths) - 2 * len(widths))
    return [
        "  ".join(
            [f"{_cut(name, room):{room}}", *(f"{cell:>{size}}" for cell, size in zip(cells, widths, strict=True))]
        )
        for name, cells in rows
    ]


def _cells(metric: str, difference: JsonDict) -> tuple[str, ...]:
    value, bounds = number(metric, difference["value"], True), interval(metric, difference["interval"], True)
    return value, bounds, str(difference["pairs"]), difference["verdict"]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def deciding(results: RunResults) -> tuple[list[JsonDict], int]:
    """The differences of the leading metric to print, in the order of settings, and how many others there are.

    Where there are too many, those with a verdict come first, and the largest of them.
    """
    differences = results.differences
    if is_decided_by_accuracy(results.leading, differences):
        differences = at_equal_accuracy(differences)
    leading = [one for one in differences if one["metric"] == results.leading and one["value"] is not None]
    ranked = sorted(leading, key=lambda one: (one["verdict"] not in ("higher", "lower"), -abs(one["value"])))
    chosen = sorted(ranked[:MOST_COMPARISONS], key=lambda one: one["setting"])
    return chosen, len(leading) - len(chosen)


def what_was_run(results: RunResults) -> list[tuple[str, str]]:
    """The rows of the table of what was run."""
    config, (settings, replicates) = results.config, sweep_size(results.config)
    swept = [f"{path} = {setting_phrase(config, path)}" for path in flat_sweep(config) if path not in REPLICATES]
    varied = [path for path, values in flat_sweep(config).items() if path in REPLICATES and len(values) > 1]
    seeds = ["all seeds" if path == REPLICATE else path for path in varied]
    rows = [
        ("kind", str(results.facts["kind"])),
        ("settings", ": ".join([str(settings), *(["; ".join(swept)] if settings > 1 else [])])),
        ("replicates", " ".join([str(replicates), *([f"({' × '.join(seeds)})"] if seeds else [])])),
        *((name, _filled(config, template)) for name, template in FACTS),
        ("time", seconds(results.run.status()["seconds"])),
    ]
    return [(name, words) for name, words in rows if words]


def _filled(config: JsonDict, template: str) -> str:
    """The settings that a template names and the configuration has, each with its unit."""
    parts: list[str] = []
    for field in template.strip("{}").split("} {"):
        path, _, unit = field.partition(":")
        value = setting_phrase(config, path)
        if value != MISSING:
            parts.append(f"{value} {unit.removesuffix('s') if value == '1' else unit}".strip())
    return ", ".join(parts)
