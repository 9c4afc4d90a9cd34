"""Print runs to the terminal as tables, or one run as JSON."""

import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.reports.configurations import sweep_size
from unbraid.reports.equality import MARGIN, NO_VERDICT, at_equal_accuracy, is_decided_by_accuracy
from unbraid.reports.run_results import MOST_ROWS, Setting, badness, best_of, environment, figure_paths, read_setting
from unbraid.reports.summaries import summary_of
from unbraid.reports.words import MISSING, beside, describe_metric, in_order, interval, number, seconds
from unbraid.storage.files import json_bytes
from unbraid.storage.runs import Run

FEW_SETTINGS = 5
"""Of very many settings so many are printed."""


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
    config, status, facts = run.config(), run.status(), run.facts()
    summary = summary_of(facts)
    title = f": {config['title']}" if config.get("title") else ""
    console.print(Text(f"{run.name}{title}", style="bold"))
    console.print(Text(" ".join(summary.what_was_run(config))))
    if status["state"] != "finished":
        _print_unfinished(console, run, status)
        return
    console.print(Text(f"Finished in {seconds(status['seconds'])}."))
    scores = run.scores()
    settings = [read_setting(index, card) for index, card in enumerate(scores["settings"])]
    if len(settings) > MOST_ROWS:
        _print_best(console, run, settings, facts["leading"])
        return
    printed = summary.printed
    differences = [one for one in scores["differences"] if printed is None or one["metric"] in printed]
    if is_decided_by_accuracy(facts["leading"], differences):
        differences = at_equal_accuracy(differences)
    console.print("", _score_table(settings, printed), sep="\n")
    if differences:
        console.print("", _difference_table(settings, differences), sep="\n")
    unequal = any(one["verdict"] == NO_VERDICT for one in differences)
    why = f"No verdict: accuracies are not known to be equal (within ±{MARGIN:g}). " if unequal else ""
    if why or printed is not None:
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


def _print_best(console: Console, run: Run, settings: Sequence[Setting], leading: str) -> None:
    """Of very many settings the best few, and where the rest is."""
    ranked = sorted(settings, key=lambda setting: badness(leading, setting.value(leading)))[:FEW_SETTINGS]
    heading, others = describe_metric(leading).label, beside(leading)
    table = _table("setting", [heading, "chance", *[describe_metric(metric).label for metric in others]], [])
    for setting in ranked:
        chance = setting.scores[leading].chance if leading in setting.scores else None
        cells = [number(leading, setting.value(leading)), number(leading, chance)]
        cells += [number(metric, setting.value(metric)) for metric in others]
        table.add_row(Text(setting.label), *map(Text, cells))
    console.print("", table, sep="\n")
    which = f"The {len(ranked)} settings of the {best_of(leading)} {heading}"
    console.print(Text(f"{which}; all {len(settings)} are {_where(run)}."))


def _where(run: Run) -> str:
    return f"in {run.path / 'report.html'} and `unbraid show {shlex.quote(str(run.path))} --json`"


def _score_table(settings: Sequence[Setting], printed: Sequence[str] | None) -> Table:
    """Metric by metric, a line a setting; of the metrics to be printed, or of all."""
    table = _table("score", ["mean", "95 % interval", "chance", "ceiling"], [])
    found = dict.fromkeys(metric for setting in settings for metric in setting.scores)
    for metric in in_order([metric for metric in found if printed is None or metric in printed]):
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
    heading = Text(describe_metric(metric).label, style="bold")
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
    leading = run.facts()["leading"]
    cards = [card["metrics"][leading] for card in settings if leading in card["metrics"]]
    best = min((card for card in cards if card["value"] is not None), key=lambda card: badness(leading, card["value"]))
    return f"{describe_metric(leading).label} {number(leading, best['value'])} ({number(leading, best['chance'])})"
