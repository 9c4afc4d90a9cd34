"""Carry out runs while a person watches: train, score and report what is missing; a signal stops them well."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from unbraid.config import Tree
from unbraid.errors import Missing
from unbraid.progress import Bar, Lines, OneOfMany, Silent, Watcher
from unbraid.reports.page import write_report
from unbraid.runs import Run
from unbraid.signals import StopSignals
from unbraid.studies.claims import Claim
from unbraid.studies.plans import Study, asked_of
from unbraid.sweeps.execute import execute, works
from unbraid.sweeps.prepare import gather_shards, overridden, prepare


def finish(run: Run, watcher: Watcher, how_to_go_on: str) -> Path:
    """Do whatever a run still needs, and write its report."""
    with run.locked(), StopSignals(how_to_go_on) as signals:
        for change in run.environment_changes():
            watcher.say(f"note: {change}; the bits may differ from an uninterrupted run")
        execute(run, watcher, signals)
        watcher.stage("writing the report")
        return write_report([run], run.path / "report.html")


def prepared(data: Tree, overrides: Sequence[str], source: str, how_to_go_on: str, quiet: bool) -> Tree:
    """The configuration that a run keeps; activations it needs and has not got are captured first."""
    asked = overridden(data, overrides, source)
    gather_shards(asked, source, watcher(quiet), how_to_go_on)
    return prepare(asked, [], source)


def gather_for(claims: Sequence[Claim], scale: str, how_to_go_on: str, quiet: bool) -> None:
    """Capture the activations that the studies of these claims need; what cannot be made here is left to the ledger."""
    for asked, path in {(claim.study, claim.overrides.get(scale)): asked_of(claim, scale) for claim in claims}.values():
        with suppress(Missing):
            gather_shards(asked, str(path), watcher(quiet), how_to_go_on)


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
