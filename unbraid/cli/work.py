"""Carry out runs while a person watches: train, score and report what is missing; a signal stops them well."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from unbraid.activations.capture import CaptureConfig, capture_missing
from unbraid.config import JsonDict
from unbraid.errors import Missing
from unbraid.pipeline.expand import Plan, expand
from unbraid.pipeline.run import carry_out, missing_stages
from unbraid.pipeline.stage import Stage
from unbraid.progress import OneOfMany, Progress, Recorded, for_terminal
from unbraid.report.page import write_report
from unbraid.signals import StopSignals
from unbraid.storage.runs import Run

if TYPE_CHECKING:
    from unbraid.studies.claims import Claim
    from unbraid.studies.plans import Study


def finish(
    run: Run, plan: Plan | None, progress: Progress, resume_command: str, missing: Sequence[Stage] | None = None
) -> None:
    """Do whatever a run still needs, and write its report."""
    with run.locked(), StopSignals(resume_command) as signals, Recorded(progress, run.set_progress) as progress:
        for change in run.environment_changes() if not run.is_finished else ():
            progress.say(f"note: {change}; the bits may differ from an uninterrupted run")
        carry_out(run, plan, progress, signals, _report, missing)


def _report(run: Run) -> Path:
    return write_report([run], run.path / "report.html")


def expand_and_capture(data: JsonDict, source: str, resume_command: str, quiet: bool) -> Plan:
    """The members of a configuration; activations it needs and has not got are captured first."""
    return expand(data, source, _capture_with(data, resume_command, quiet))


def _capture_with(data: JsonDict, resume_command: str, quiet: bool) -> Callable[[CaptureConfig, Path], None]:
    def capture(config: CaptureConfig, folder: Path) -> None:
        hardware = data.get("device", "cpu"), data.get("precision", "float32")
        capture_missing(config, folder, for_terminal(quiet), resume_command, *hardware)

    return capture


def capture_for(claims: "Sequence[Claim]", scale: str, resume_command: str, quiet: bool) -> None:
    """Capture what the studies of these claims need; what cannot be made here is left to the ledger."""
    from unbraid.studies.plans import study_config

    studies = {(claim.study, claim.overrides.get(scale)): study_config(claim, scale) for claim in claims}
    for data, path in studies.values():
        with suppress(Missing):
            expand_and_capture(data, str(path), resume_command, quiet)


def work_through(studies: "Sequence[Study]", resume_command: str, quiet: bool) -> None:
    """Do what is left of several studies, shown as one work."""
    with for_terminal(quiet) as whole:
        opened = [(study.open_run(), study.plan) for study in studies]
        missing = [missing_stages(run, plan, whole.say) if plan else [] for run, plan in opened]
        whole.plan([stage.task() for stages in missing for stage in stages])
        for index, (run, plan) in enumerate(opened):
            whole.status(f"study {index + 1} of {len(studies)}: {run.name}")
            first = sum(len(stages) for stages in missing[:index])
            finish(run, plan, OneOfMany(whole, first), resume_command, missing[index])
