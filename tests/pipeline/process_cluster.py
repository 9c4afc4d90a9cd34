"""A cluster of plain processes, for tests of whoever drives one: each job is a process, which can be frozen."""

from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.killing import LAUNCHER
from tests.pipeline.small_stages import Small
from unbraid.errors import Lost
from unbraid.pipeline.cluster import Cluster, Job, Outcome, work
from unbraid.pipeline.executors import Needs


def _report(job: Job, pipe: Connection) -> None:
    outcome = work(job)
    assert isinstance(job.stage, Small)
    (Path(job.stage.beside) / f"outcome-{job.stage.number}-{job.over}").write_text(outcome.what)
    with suppress(OSError):  # nobody may listen any more
        pipe.send(outcome)


class ProcessCluster(Cluster):
    """`jobs` are all that were ever submitted, each with its process."""

    slots = 2

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, BaseProcess]] = []
        self.spared = False
        """Whether jobs are not ended, as where a machine cannot be reached."""

    def open(self) -> None:
        pass

    def check_room(self, name: str, needs: Needs) -> None:
        pass

    def submit(self, job: Job) -> Any:
        ours, theirs = LAUNCHER.Pipe()
        process = LAUNCHER.Process(target=_report, args=(job, theirs))
        process.start()
        theirs.close()
        self.jobs.append((job, process))
        return process, ours

    def outcome(self, handle: Any) -> Outcome | None:
        process, pipe = handle
        if pipe.poll():
            try:
                return pipe.recv()
            except EOFError:
                raise Lost("its process died") from None
        if not process.is_alive() and not pipe.poll():
            raise Lost("its process died")
        return None

    def end(self, handles: Sequence[Any]) -> None:
        for process, _ in [] if self.spared else handles:
            process.kill()

    def close(self) -> None:
        pass

    def of(self, name: str) -> list[BaseProcess]:
        """The processes that were to make the stage of this name, the first first."""
        return [process for job, process in self.jobs if job.stage.name == name]
