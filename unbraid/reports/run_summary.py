"""What a finished run prints: what was run, the headline, the comparisons that decide, and where the rest is."""

from rich.console import Console
from rich.text import Text

from unbraid.reports.findings import read_findings
from unbraid.reports.sentences import headline
from unbraid.storage.runs import Run


def print_summary(run: Run) -> None:
    """At most 25 lines; the rest is `unbraid show`."""
    console = Console(highlight=False)
    findings = read_findings(run)
    console.print(Text(findings.title, style="bold"))
    console.print(Text(headline(findings)))
    console.print(Text(f"report  {run.path / 'report.html'}"), soft_wrap=True)
    console.print(Text(f"scores  unbraid show {run.path}"), soft_wrap=True)
