"""What a finished run prints: what was run, the headline, the comparisons that decide, and where the rest is."""

from rich.console import Console
from rich.text import Text

from unbraid.reports.run_results import read_results
from unbraid.reports.sentences import headline
from unbraid.storage.runs import Run


def print_summary(run: Run) -> None:
    """At most 25 lines; the rest is `unbraid show`."""
    console = Console(highlight=False)
    results = read_results(run)
    console.print(Text(results.title, style="bold"))
    console.print(Text(headline(results)))
    console.print(Text(f"report  {run.path / 'report.html'}"), soft_wrap=True)
    console.print(Text(f"scores  unbraid show {run.path}"), soft_wrap=True)
