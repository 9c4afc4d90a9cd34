"""Print the scores of dictionaries on a language model by setting, beside chance and raw activations."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.figures.words import MISSING, describe, in_order, interval, number

TWO_SIDED = 1.96
"""Standard errors on each side of a 95 % interval."""
COLUMNS = ("mean", "95 % interval", "chance", "raw")


def print_scores(scores: JsonDict) -> None:
    """The scores, then the differences from the first setting, then the warnings."""
    console = Console(highlight=False)
    console.print(Text(f"{scores['model']}, {scores['site']}", style="bold"))
    console.print("", _scores(scores), sep="\n")
    settings = scores["settings"]
    if len(settings) > 1:
        console.print("", _differences(scores), sep="\n")
    if any(metric["interval"] is None for one in settings for metric in one["metrics"].values()):
        console.print(Text("Intervals marked ± are of one replicate: over texts, not over seeds."))
    for sentence in scores["warnings"]:
        console.print(Text(f"Note: {sentence}"))


def _scores(scores: JsonDict) -> Table:
    table, settings = _table("score", COLUMNS), scores["settings"]
    raw = scores["baselines"]["raw activations"]
    for metric in in_order(list(dict.fromkeys(name for one in settings for name in one["metrics"]))):
        heading = Text(describe(metric).label, style="bold")
        if len(settings) > 1:
            table.add_row(heading)
        for one in settings:
            if metric in one["metrics"]:
                card = one["metrics"][metric]
                cells = [number(metric, card["value"]), _bounds(metric, card), number(metric, card["chance"])]
                cells.append(number(metric, raw[metric]["value"]) if metric in raw else MISSING)
                first = Padding(Text(one["label"]), (0, 0, 0, 2)) if len(settings) > 1 else heading
                table.add_row(first, *map(Text, cells))
    return table


def _bounds(metric: str, card: JsonDict) -> str:
    """Over replicates; of a single replicate, over texts."""
    if card["interval"] is not None or card["error"] is None:
        low, high = card["interval"] or (None, None)
        return interval(metric, low, high)
    return f"± {number(metric, TWO_SIDED * card['error'])}"


def _differences(scores: JsonDict) -> Table:
    settings = scores["settings"]
    table = _table(f"minus {settings[0]['label']}", ("difference", "95 % interval", "pairs", "verdict"))
    for metric in in_order(list(dict.fromkeys(one["metric"] for one in scores["differences"]))):
        table.add_row(Text(describe(metric).label, style="bold"))
        for one in scores["differences"]:
            if one["metric"] == metric:
                cells = [
                    number(metric, one["value"], True),
                    interval(metric, *(one["interval"] or (None, None)), signed=True),
                ]
                cells += [str(one["pairs"]), one["verdict"]]
                table.add_row(Padding(Text(settings[one["setting"]]["label"]), (0, 0, 0, 2)), *map(Text, cells))
    return table


def _table(first: str, others: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(first), overflow="fold")
    for name in others:
        table.add_column(Text(name), justify="right", no_wrap=True)
    return table
