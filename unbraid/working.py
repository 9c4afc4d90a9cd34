"""Carry out runs while a person watches: train, score and report what is missing; a signal stops them well."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from unbraid.progress import Bar, Lines, OneOfMany, Silent, Watcher
from unbraid.reports.page import write_report
from unbraid.runs import Run, environment_changes
from unbraid.signals import StopSignals
from unbraid.studies.plans import Study
from unbraid.sweeps.execute import execute, works


def finish(run: Run, watcher: Watcher, how_to_go_on: str) -> Path:
    """Do whatever a run still needs, and write its report."""
    with run.locked(), StopSignals(how_to_go_on) as signals:
        for change in environment_changes(run):
            watcher.say(f"note: {change}; the bits may differ from an uninterrupted run")
        execute(run, watcher, signals)
        watcher.stage("writing the report")
        return write_report([run], run.path / "report.html")


def work_through(studies: Sequence[Study], how_to_go_on: str, quiet: bool) -> None:
    """Do what is left of several studies, shown as one work."""
    plans = [works(study.config, study.run.name) for study in studies]
    with watcher(quiet) as whole:
        whole.plan([work for plan in plans for work in plan])
        for place, study in enumerate(studies):
            whole.stage(f"study {place + 1} of {len(studies)}: {study.run.name}")
            finish(study.opened(), OneOfMany(whole, sum(map(len, plans[:place]))), how_to_go_on)


def watcher(quiet: bool) -> Watcher:
    """A bar on a terminal, lines elsewhere, or nothing."""
    console = Console(stderr=True)
    return Silent() if quiet else Bar(console) if console.is_terminal else Lines(console)
