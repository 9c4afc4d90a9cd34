# pyright: reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportArgumentType=false, reportReturnType=false, reportCallIssue=false
"""Print runs to the terminal as tables, or one run as JSON."""

import shlex
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.figures.scores import MARGIN, NO_VERDICT, at_equal_accuracy
from unbraid.figures.words import MISSING, describe, in_order, interval, number, seconds
from unbraid.report.summary import best_setting, sweep_size, what_was_run
from unbraid.results import TABLES, RunResults
from unbraid.storage.files import json_bytes
from unbraid.storage.runs import Run

MOST_ROWS = 24
"""Settings whose scores are all printed."""
BESIDE = {
    "phi": ("phi_share", "accuracy"),
    "mmcs": ("recovered", "l0"),
    "explained_variance": ("l0", "dead"),
    "accuracy": ("support_best", "attention_entropy"),
    "perplexity": ("bits_per_character", "parameters"),
    "evenness": ("clusters",),
}
"""The scores shown beside a leading one where there is little room."""
PRINTED = {
    "phi": (
        *("phi", "phi_share", "phi_k_features", "probe", "factors_recovered", "factors_missed", "dci_disentanglement"),
        *("causal", "accuracy", "l0", "dead", "explained_variance", "stability"),
    )
}
"""The scores that `unbraid show` prints of a run with this leading metric, which has very many; of others all."""
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
    console, results, status = Console(highlight=False), RunResults(run), run.status()
    title = f": {results.config['title']}" if results.config.get("title") else ""
    console.print(Text(f"{run.name}{title}", style="bold"))
    facts = [(name, words) for name, words in what_was_run(results) if name != "time"]
    for name, words in facts:
        console.print(Text(f"{name:{max(len(first) for first, _ in facts)}}  {words}"))
    if status["state"] != "finished":
        _print_unfinished(console, run, status)
        return
    console.print(Text(f"Finished in {seconds(status['seconds'])}."))
    if len(results.labels) > MOST_ROWS:
        _print_best(console, results)
        return
    printed = PRINTED.get(results.leading)
    differences = at_equal_accuracy(results.differences, results.leading)
    if printed is not None:
        differences = differences[differences["metric"].isin(printed)]
    console.print("", _score_table(results, printed), sep="\n")
    if len(differences):
        console.print("", _difference_table(results, differences), sep="\n")
    unequal = (differences["verdict"] == NO_VERDICT).any()
    why = f"No verdict: accuracies are not known to be equal (within ±{MARGIN:g}). " if unequal else ""
    if why or printed is not None:
        console.print("", Text(f"{why}All scores are {_where(run)}."), sep="\n", soft_wrap=True)


def write_tables(run: Run, folder: Path) -> list[Path]:
    """Every table of a run as a CSV file in a folder."""
    results = RunResults(run)
    if folder.resolve().is_relative_to(run.path.resolve()):
        raise UserError(f"{folder} is inside the run, whose files are sealed; accepted: another folder")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.csv" for name in ("members", *TABLES)]
    for path in paths:
        getattr(results, path.stem).to_csv(path, index=False)
    return paths


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
        "environment": run.environment(),
        "settings": scores["settings"],
        "differences": scores["differences"],
        "figures": _figures(run) if finished else {},
    }
    return json_bytes(described).decode().rstrip("\n")


def _print_unfinished(console: Console, run: Run, status: JsonDict) -> None:
    """Its state, and the command to go on with on a line that is not broken, so that it can be copied."""
    worked = f" after {seconds(status['seconds'])}" if status["seconds"] else ""
    sentence = f": {status['sentence']}" if status["sentence"] else "."
    console.print(Text(f"{status['state'].capitalize()}{worked}{sentence}"), soft_wrap=True)
    if status["state"] != "running" and run.resume_command not in sentence:
        console.print(Text(f"Go on with: {run.resume_command}"), soft_wrap=True)


def _figures(run: Run) -> dict[str, str]:
    """The figures that `unbraid report --figures` wrote."""
    return {path.stem: str(path.resolve()) for path in sorted((run.path / "figures").glob("*.*"))}


def _print_best(console: Console, results: RunResults) -> None:
    """Of very many settings the best few, and where the rest is."""
    metrics = [results.leading, *(name for name in BESIDE.get(results.leading, ()) if results.has_score(name))]
    heading, ranked = describe(results.leading).label, results.ranked[:FEW_SETTINGS]
    rows = results.of_metric(*metrics).set_index(["setting", "metric"])
    table = _table("setting", [heading, "chance", *[describe(metric).label for metric in metrics[1:]]], [])
    for setting in ranked:
        cells = [_number(rows, setting, results.leading), _number(rows, setting, results.leading, "chance")]
        cells += [_number(rows, setting, metric) for metric in metrics[1:]]
        table.add_row(Text(results.labels[setting]), *map(Text, cells))
    console.print("", table, sep="\n")
    best = "lowest" if describe(results.leading).better == "lower" else "highest"
    which = f"The {len(ranked)} settings of the {best} {heading}"
    console.print(Text(f"{which}; all {len(results.labels)} are {_where(results.run)}."))


def _number(rows: pd.DataFrame, setting: int, metric: str, column: str = "value") -> str:
    return number(metric, float(rows.loc[(setting, metric)][column])) if (setting, metric) in rows.index else MISSING


def _where(run: Run) -> str:
    return f"in {run.path / 'report.html'} and `unbraid show {shlex.quote(str(run.path))} --json`"


def _score_table(results: RunResults, printed: Sequence[str] | None) -> Table:
    """Metric by metric, a line a setting; of the metrics to be printed, or of all."""
    table = _table("score", ["mean", "95 % interval", "chance", "ceiling"], [])
    for metric in in_order(name for name in results.summary["metric"] if printed is None or name in printed):
        lines = [
            [
                row.label,
                number(metric, row.value),
                interval(metric, row.low, row.high),
                number(metric, row.chance),
                number(metric, row.ceiling),
            ]
            for row in results.summary[results.summary["metric"] == metric].itertuples()
        ]
        _add_group(table, metric, lines, len(results.labels) > 1)
    return table


def _difference_table(results: RunResults, differences: pd.DataFrame) -> Table:
    """Metric by metric, how each setting differs from the first."""
    first, several = " or ".join(dict.fromkeys(differences["reference_label"])), len(results.labels) > 2
    name = f"minus {first}" if several else f"{results.labels[-1]} minus {first}"
    table = _table(name, ["difference", "95 % interval", "pairs"], ["verdict"])
    for metric in in_order(differences["metric"]):
        lines = [
            [
                row.label,
                number(metric, row.value, True),
                interval(metric, row.low, row.high, True),
                str(row.pairs),
                row.verdict,
            ]
            for row in differences[differences["metric"] == metric].itertuples()
        ]
        _add_group(table, metric, lines, several)
    return table


def _add_group(table: Table, metric: str, lines: Sequence[Sequence[str]], named: bool) -> None:
    """A metric and its lines under it; or its only line, when the setting needs no name."""
    heading = Text(describe(metric).label, style="bold")
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
    results = RunResults(run)
    best = best_setting(results)
    if best is None:
        return MISSING
    leading = results.leading
    return f"{describe(leading).label} {number(leading, best['value'])} ({number(leading, best['chance'])})"
