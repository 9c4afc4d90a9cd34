# pyright: reportArgumentType=false, reportReturnType=false
"""What a finished run prints: what was run, the headline, the comparisons that decide, and where the rest is."""

import shlex
from textwrap import wrap

import pandas as pd
from rich.console import Console
from rich.text import Text

from unbraid.figures.scores import at_equal_accuracy
from unbraid.figures.words import describe, interval, number
from unbraid.report.summary import headline, what_was_run
from unbraid.results import RunResults
from unbraid.storage.runs import Run

MOST_LINES = 24
"""The command prints one more: the path of the run."""
MOST_COMPARISONS = 5
HEADLINE_LINES = 4
HEADINGS = ("difference", "95 % interval", "pairs", "verdict")


def print_summary(run: Run) -> None:
    """At most 25 lines with the path that the command prints; the rest is `unbraid show`."""
    console = Console(highlight=False)
    title, *rest = summary_lines(RunResults(run), console.width)
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(Text("\n".join(rest)), soft_wrap=True)


def summary_lines(results: RunResults, width: int) -> list[str]:
    """The lines to print, each cut to this width; comparisons are left out where there is no room for them."""
    rows = what_was_run(results)
    name_width = max(len(name) for name, _ in rows)
    facts = [_cut(f"{name:{name_width}}  {words}", width) for name, words in rows]
    said = wrap(headline(results), width)
    if len(said) > HEADLINE_LINES:
        said = [*said[: HEADLINE_LINES - 1], _cut(f"{said[HEADLINE_LINES - 1]} …", width)]
    top = [_cut(results.title, width), *facts, "", *said]
    path = results.run.path
    end = ["", f"report  {path / 'report.html'}", f"scores  unbraid show {shlex.quote(str(path))}"]
    return [*top, *_comparison_lines(results, width, MOST_LINES - len(top) - len(end)), *end]


def _comparison_lines(results: RunResults, width: int, room: int) -> list[str]:
    """A blank line, the comparisons, and a line on those left out; nothing where nothing was compared."""
    compared, others = _deciding(results, MOST_COMPARISONS)
    shown = compared[: max(0, room - 3)]
    if shown.empty:
        return []
    left_out = others + len(compared) - len(shown)
    more = [f"{left_out} more: unbraid show"] if left_out else []
    return ["", *_comparisons(results, shown, width), *more]


def _deciding(results: RunResults, most: int) -> tuple[pd.DataFrame, int]:
    """The differences of the leading metric to show, in the order of settings, and how many others there are.

    Where there are too many, those with a verdict come first, and the largest of them.
    """
    rows = at_equal_accuracy(results.differences, results.leading)
    rows = rows[(rows["metric"] == results.leading) & rows["value"].notna()]
    ranked = rows.eval("open = verdict not in ['higher', 'lower']").eval("size = -abs(value)")
    chosen = ranked.sort_values(by=["open", "size"], kind="stable").head(most).sort_values(by="setting", kind="stable")
    return chosen, len(rows) - len(chosen)


def _comparisons(results: RunResults, differences: pd.DataFrame, width: int) -> list[str]:
    """A heading and a line for each; what a setting is compared with stands in the heading where it is the same."""
    metric = results.leading
    labels = list(zip(differences["label"], differences["reference_label"], strict=True))
    label, references = describe(metric).label, dict.fromkeys(first for _, first in labels)
    several = len(references) > 1
    names = [f"{ours} minus {first}" if several else ours for ours, first in labels]
    rows = [
        (label if several else f"{label} minus {next(iter(references))}", HEADINGS),
        *((name, _cells(metric, row)) for name, (_, row) in zip(names, differences.iterrows(), strict=True)),
    ]
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(HEADINGS))]
    room = min(max(len(name) for name, _ in rows), width - sum(widths) - 2 * len(widths))
    return [
        "  ".join(
            [f"{_cut(name, room):{room}}", *(f"{cell:>{size}}" for cell, size in zip(cells, widths, strict=True))]
        )
        for name, cells in rows
    ]


def _cells(metric: str, row: pd.Series) -> tuple[str, ...]:
    bounds = interval(metric, row["low"], row["high"], True)
    return number(metric, row["value"], True), bounds, str(row["pairs"]), row["verdict"]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
