"""What a finished run prints: what was run, the headline, the comparisons that decide, and where the rest is."""

import shlex
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from unbraid.config import REPLICATES, JsonDict
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
FACTS = (
    ("world", "{world.kind} {world.task} {world.text} {world.n_features:features} {world.dimensions:dimensions}"),
    ("model", "{model.kind} {model.layers:layers} {model.heads:heads} {model.d_model:dimensions}"),
    ("model training", "{model.training.steps:steps} {model.training.batch:sequences a step}"),
    ("activations", "{activations.site} {activations.stories:stories}"),
    ("dictionary", "{dictionary.d_sae:features} {dictionary.activation}"),
    ("training", "{training.steps:steps} {training.batch:samples a step}"),
    ("samples", "{samples.n}"),
)
"""Rows of the table of what was run: settings by their path, with a unit; what a run does not have is left out."""


def print_summary(run: Run) -> None:
    """At most 25 lines with the path that the command prints; the rest is `unbraid show`."""
    console = Console(highlight=False)
    for line in summary_lines(read_results(run), console):
        console.print(line, soft_wrap=True)


def summary_lines(results: RunResults, console: Console) -> list[Text]:
    """The lines to print; comparisons are left out where there is no room for them."""
    top = [Text(results.title, style="bold"), *_lines(console, _facts_table(results)), Text()]
    headline = Text(summary_of(results.facts).headline(results))
    top += _cut(_lines(console, headline), HEADLINE_LINES)
    path = results.run.path
    end = [Text(), Text(f"report  {path / 'report.html'}"), Text(f"scores  unbraid show {shlex.quote(str(path))}")]
    return [*top, *_comparison_lines(results, console, MOST_LINES - len(top) - len(end)), *end]


def _comparison_lines(results: RunResults, console: Console, room: int) -> list[Text]:
    """A blank line, the table, and a line on those that are not in it; nothing where nothing was compared."""
    compared, others = deciding(results)
    shown = compared[: room - 3]
    if not shown:
        return []
    more = others + len(compared) - len(shown)
    beyond = [Text(f"{more} more: unbraid show")] if more else []
    return [Text(), *_lines(console, _comparison_table(results, shown)), *beyond]


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


def _facts_table(results: RunResults) -> Table:
    table = _table()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, words in what_was_run(results):
        table.add_row(Text(name), Text(words))
    return table


def what_was_run(results: RunResults) -> list[tuple[str, str]]:
    """The rows of the table of what was run."""
    config, (settings, replicates) = results.config, sweep_size(results.config)
    swept = [f"{path} = {setting_phrase(config, path)}" for path in flat_sweep(config) if path not in REPLICATES]
    seeds = [path for path, values in flat_sweep(config).items() if path in REPLICATES and len(values) > 1]
    rows = [
        ("kind", str(results.facts["kind"])),
        ("settings", ": ".join([str(settings), *(["; ".join(swept)] if swept else [])])),
        ("replicates", " of ".join([str(replicates), *([" and ".join(seeds)] if seeds else [])])),
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
            parts.append(f"{value} {unit}".strip())
    return ", ".join(parts)


def _comparison_table(results: RunResults, differences: Sequence[JsonDict]) -> Table:
    metric = results.leading
    heads = (describe_metric(metric).label, "difference", "95 % interval", "pairs", "verdict")
    table = _table(header=True)
    for place, head in enumerate(heads):
        table.add_column(Text(head), no_wrap=True, overflow="ellipsis", justify="right" if 0 < place < 4 else "left")
    for one in differences:
        ours, first = (results.settings[one[name]].label for name in ("setting", "reference"))
        bounds = interval(metric, one["interval"], True)
        cells = [f"{ours} minus {first}", number(metric, one["value"], True), bounds, str(one["pairs"]), one["verdict"]]
        table.add_row(*map(Text, cells))
    return table


def _table(header: bool = False) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=header)


def _lines(console: Console, renderable: RenderableType) -> list[Text]:
    """As they come out at the width of the console."""
    lines = console.render_lines(renderable, pad=False)
    return [Text.assemble(*((part.text, part.style or "") for part in line)) for line in lines]


def _cut(lines: list[Text], most: int) -> list[Text]:
    return lines if len(lines) <= most else [*lines[: most - 1], Text.assemble(lines[most - 1], " …")]
