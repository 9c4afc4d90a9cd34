"""Print what dictionaries score on a model: setting by setting, beside chance and raw activations."""

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unbraid.config import Tree
from unbraid.reports.words import MISSING, in_order, interval, number, wording

TWO_SIDED = 1.96
"""Standard errors on each side of what 95 % of the texts that might have been read would give."""
COLUMNS = ("mean", "95 % interval", "chance", "raw")


def print_judged(judged: Tree) -> None:
    """The scores, then the differences from the first setting that are not undecided, then what to be wary of."""
    console = Console(highlight=False)
    console.print(Text(f"{judged['model']}, {judged['site']}", style="bold"))
    console.print("", _scores(judged), sep="\n")
    settings = judged["settings"]
    if len(settings) > 1:
        console.print("", _differences(judged), sep="\n")
    if any(metric["interval"] is None for one in settings for metric in one["metrics"].values()):
        console.print(Text("Intervals marked ± are of one replicate: the luck of the texts, not of the seed."))
    for sentence in judged["warnings"]:
        console.print(Text(f"Note: {sentence}"))


def _scores(judged: Tree) -> Table:
    table, settings = _table("score", COLUMNS), judged["settings"]
    raw = judged["beside"]["raw activations"]
    for metric in in_order(list(dict.fromkeys(name for one in settings for name in one["metrics"]))):
        heading = Text(wording(metric).heading, style="bold")
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


def _bounds(metric: str, card: Tree) -> str:
    """Over replicates; of one replicate, what the luck of the texts gives."""
    if card["interval"] is not None or card["error"] is None:
        return interval(metric, card["interval"])
    return f"± {number(metric, TWO_SIDED * card['error'])}"


def _differences(judged: Tree) -> Table:
    settings = judged["settings"]
    table = _table(f"minus {settings[0]['label']}", ("difference", "95 % interval", "pairs", "verdict"))
    for metric in in_order(list(dict.fromkeys(one["metric"] for one in judged["differences"]))):
        table.add_row(Text(wording(metric).heading, style="bold"))
        for one in judged["differences"]:
            if one["metric"] == metric:
                cells = [number(metric, one["value"], True), interval(metric, one["interval"], True)]
                cells += [str(one["pairs"]), one["verdict"]]
                table.add_row(Padding(Text(settings[one["setting"]]["label"]), (0, 0, 0, 2)), *map(Text, cells))
    return table


def _table(first: str, others: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(first), overflow="fold")
    for name in others:
        table.add_column(Text(name), justify="right", no_wrap=True)
    return table
