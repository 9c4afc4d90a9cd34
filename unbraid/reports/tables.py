"""Print runs to the terminal as tables, or one run as JSON."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.reports.configurations import is_line, sweep_size
from unbraid.reports.equality import MARGIN, NO_VERDICT, at_equal_accuracy
from unbraid.reports.findings import MOST_ROWS, Setting, badness, best_of, environment, figure_paths, read_setting
from unbraid.reports.line_words import LEADING
from unbraid.reports.sentences import what_was_run
from unbraid.reports.words import MISSING, in_order, interval, number, seconds, wording
from unbraid.storage.files import json_bytes
from unbraid.storage.runs import Run

FEW_SETTINGS = 5
BESIDE = {
    "recovery": ("probe", "factors_recovered", "accuracy"),
    "mmcs": ("f1", "l0", "dead"),
    "accuracy": ("support_best", "spread"),
    "perplexity": ("bits_per_character", "parameters"),
}
"""Of very many settings so many are printed, by one of these scores, with some beside it."""
OF_A_LINE = (*LEADING, "l0", "explained_variance", "accuracy")
"""Of the many scores of a line those that are printed."""


def print_runs(runs: Sequence[Run], parent: Path) -> None:
    """One line a run, oldest first; a run that cannot be read is still a line."""
    console = Console(highlight=False)
    if not runs:
        console.print(Text(f"There are no runs in {parent}; make one with: unbraid run quickstart"))
        return
    table = _table("run", [], ["began", "state", "settings\n× seeds", "best score\n(chance)"])
    for run in runs:
        cells = [_or_missing(part, run) for part in (_began, _state, _size, _best)]
        cells[1] = "damaged" if run.is_damaged() or cells[1] == MISSING else cells[1]
        table.add_row(*map(Text, [run.name, *cells]))
    console.print(table)


def print_run(run: Run) -> None:
    """What was run and how far it is; for a finished run its scores and differences."""
    console = Console(highlight=False)
    config, status = run.config(), run.status()
    title = f": {config['title']}" if config.get("title") else ""
    console.print(Text(f"{run.name}{title}", style="bold"))
    console.print(Text(" ".join(what_was_run(config))))
    if status["state"] != "finished":
        _print_unfinished(console, run, status)
        return
    console.print(Text(f"Finished in {seconds(status['seconds'])}."))
    scores = run.scores()
    settings = [read_setting(index, card) for index, card in enumerate(scores["settings"])]
    if len(settings) > MOST_ROWS:
        _print_best(console, run, settings)
        return
    kept = OF_A_LINE if is_line(config) else None
    differences = scores["differences"]
    if kept is not None:
        differences = at_equal_accuracy([one for one in differences if one["metric"] in kept])
    console.print("", _score_table(settings, kept), sep="\n")
    if differences:
        console.print("", _difference_table(settings, differences), sep="\n")
    if kept is not None:
        unequal = any(one["verdict"] == NO_VERDICT for one in differences)
        why = f"No verdict: accuracies are not known to be equal (within ±{MARGIN:g}). " if unequal else ""
        console.print("", Text(f"{why}All scores are {_where(run)}."), sep="\n", soft_wrap=True)


def run_as_json(run: Run) -> str:
    """Config, scores and figures with stable keys: see docs/show-json.md."""
    status = run.status()
    finished = status["state"] == "finished"
    scores: JsonDict = run.scores() if finished else {"settings": [], "differences": []}
    described = {
        "name": run.name,
        "path": str(run.path.resolve()),
        "state": status["state"],
        "config": run.config(),
        "environment": environment(run),
        "settings": scores["settings"],
        "differences": scores["differences"],
        "figures": figure_paths(run) if finished else {},
    }
    return json_bytes(described).decode().rstrip("\n")


def _print_unfinished(console: Console, run: Run, status: JsonDict) -> None:
    """Its state, and the command to go on with on a line that is not broken, so that it can be copied."""
    worked = f" after {seconds(status['seconds'])}" if status["seconds"] else ""
    sentence = f": {status['sentence']}" if status["sentence"] else "."
    console.print(Text(f"{status['state'].capitalize()}{worked}{sentence}"), soft_wrap=True)
    if status["state"] != "running" and run.resume_command not in sentence:
        console.print(Text(f"Go on with: {run.resume_command}"), soft_wrap=True)


def _print_best(console: Console, run: Run, settings: Sequence[Setting]) -> None:
    """Of very many settings the best few, and where the rest is."""
    leading = _leading(settings[0].scores)
    ranked = sorted(settings, key=lambda one: badness(leading, one.value(leading)))[:FEW_SETTINGS]
    heading = wording(leading).label
    table = _table("setting", [heading, "chance", *[wording(metric).label for metric in BESIDE[leading]]], [])
    for one in ranked:
        chance = one.scores[leading].chance if leading in one.scores else None
        cells = [number(leading, one.value(leading)), number(leading, chance)]
        cells += [number(metric, one.value(metric)) for metric in BESIDE[leading]]
        table.add_row(Text(one.label), *map(Text, cells))
    console.print("", table, sep="\n")
    console.print(
        Text(f"These are the {len(ranked)} of the {best_of(leading)} {heading}; all {len(settings)} are {_where(run)}.")
    )


def _where(run: Run) -> str:
    return f"in {run.path / 'report.html'} and `unbraid show {shlex.quote(str(run.path))} --json`"


def _score_table(settings: Sequence[Setting], kept: Sequence[str] | None) -> Table:
    """Metric by metric, a line a setting; of the metrics kept, or of all."""
    table = _table("score", ["mean", "95 % interval", "chance", "ceiling"], [])
    found = dict.fromkeys(metric for setting in settings for metric in setting.scores)
    for metric in in_order([metric for metric in found if kept is None or metric in kept]):
        lines: list[list[str]] = []
        for setting in settings:
            if metric in setting.scores:
                score = setting.scores[metric]
                value, *against = (number(metric, each) for each in (score.value, score.chance, score.ceiling))
                lines.append([setting.label, value, interval(metric, score.interval), *against])
        _add_group(table, metric, lines, len(settings) > 1)
    return table


def _difference_table(settings: Sequence[Setting], differences: Sequence[JsonDict]) -> Table:
    """Metric by metric, how each setting differs from the first."""
    references = {settings[one["reference"]].label: None for one in differences}
    first, several = " or ".join(references), len(settings) > 2
    name = f"minus {first}" if several else f"{settings[-1].label} minus {first}"
    table = _table(name, ["difference", "95 % interval", "pairs"], ["verdict"])
    for metric in in_order(list(dict.fromkeys(one["metric"] for one in differences))):
        lines: list[list[str]] = []
        for one in differences:
            if one["metric"] == metric:
                value, bounds = number(metric, one["value"], True), interval(metric, one["interval"], True)
                lines.append([settings[one["setting"]].label, value, bounds, str(one["pairs"]), one["verdict"]])
        _add_group(table, metric, lines, several)
    return table


def _add_group(table: Table, metric: str, lines: Sequence[Sequence[str]], named: bool) -> None:
    """A metric and its lines under it; or its only line, when the setting needs no name."""
    heading = Text(wording(metric).label, style="bold")
    if named:
        table.add_row(heading)
    for first, *rest in lines:
        table.add_row(Padding(Text(first), (0, 0, 0, 2)) if named else heading, *map(Text, rest))


def _table(first: str, numbers: Sequence[str], words: Sequence[str]) -> Table:
    """Only the first column may break its lines: a number cut in two is unreadable."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(first), overflow="fold")
    for name in numbers:
        table.add_column(Text(name), justify="right", no_wrap=True)
    for name in words:
        table.add_column(Text(name), no_wrap=True)
    return table


def _or_missing(part: Callable[[Run], str], run: Run) -> str:
    """A damaged run must not hide the others."""
    try:
        return part(run)
    except (UserError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return MISSING


def _began(run: Run) -> str:
    return datetime.fromisoformat(run.facts()["began"]).astimezone().strftime("%Y-%m-%d %H:%M")


def _state(run: Run) -> str:
    return str(run.status()["state"])


def _size(run: Run) -> str:
    settings, replicates = sweep_size(run.config())
    return f"{settings} × {replicates}"


def _best(run: Run) -> str:
    if run.status()["state"] != "finished":
        return MISSING
    settings = run.scores()["settings"]
    leading = _leading(settings[0]["metrics"])
    cards = [card["metrics"][leading] for card in settings]
    best = min((card for card in cards if card["value"] is not None), key=lambda card: badness(leading, card["value"]))
    return f"{wording(leading).label} {number(leading, best['value'])} ({number(leading, best['chance'])})"


def _leading(scores: Mapping[str, object]) -> str:
    """The score that settings are ranked by."""
    return next((metric for metric in ("recovery", "accuracy", "perplexity") if metric in scores), "mmcs")
