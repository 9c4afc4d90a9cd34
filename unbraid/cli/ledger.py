"""Print claims and verdicts to the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.report.ledger import claims_table, marks, tally


def print_ledger(entries: Sequence[JsonDict]) -> None:
    """The ledger as a table; only the first column may break its lines, so that it fits 80 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text("claim\n(published)"), overflow="fold")
    numbers, rows = ["ours", "95 % interval", "p"], claims_table(entries)
    for name in numbers:
        table.add_column(Text(name), justify="right", no_wrap=True)
    table.add_column(Text("verdict"), no_wrap=True)
    for entry, cells in zip(entries, rows[[*numbers, "verdict"]].to_numpy(), strict=True):
        claim = Text.assemble(
            (entry["id"], "bold"), f"\n({entry['published']})", *(f"\n{mark}" for mark in marks(entry))
        )
        table.add_row(claim, *map(Text, cells))
    console = Console(highlight=False)
    console.print(table)
    console.print(Text(tally(entries)))


def print_claims(entries: Sequence[JsonDict]) -> None:
    """What could be run: each claim with its source's sentence, the study that tests it, and how it is decided."""
    console = Console(highlight=False)
    for entry in entries:
        console.print(Text(entry["id"], style="bold"), Text(f"({entry['study']})"))
        for line in (entry["statement"], f"source: “{entry['quote']}”", *_design(entry), *marks(entry)):
            console.print(Padding(Text(line), (0, 0, 0, 4 if line.startswith("- ") else 2)))


def _design(entry: JsonDict) -> list[str]:
    """Replicates, how the parts combine, and each part's rule with its smallest effect."""
    replicates = entry["replicates"]
    planned = "not known here" if replicates["planned"] is None else str(replicates["planned"])
    claimed = entry["controls"].count(False)
    together = f"needs {entry['combine']} of {claimed} parts" if claimed > 1 else "one part"
    controls = len(entry["controls"]) - claimed
    together += f"; undecided unless its controls hold ({controls})" if controls else ""
    rules = [
        f"{'control: ' if control else ''}{rule}; smallest effect {smallest:g}"
        for rule, smallest, control in zip(entry["rules"], entry["smallest"], entry["controls"], strict=True)
    ]
    return [f"replicates: {planned} (at least {replicates['needed']}); {together}", *(f"- {rule}" for rule in rules)]
