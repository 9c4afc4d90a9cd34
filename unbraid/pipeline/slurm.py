"""Jobs on a Slurm cluster, each submitted by submitit: `--on slurm`, or `--on slurm://PARTITION`.

A job goes on when its driver ends; whoever resumes the run waits for its lease. One that Slurm ends, at its time limit
or for another's sake, is submitted again and goes on from its checkpoint.
"""

import importlib
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from unbraid.errors import Lost, UserError
from unbraid.pipeline.cluster import Cluster, Job, Outcome, work
from unbraid.pipeline.executors import Needs, threads_each

MINUTES = 24 * 60
"""The time limit of a job."""
SLOTS = 16
"""How many jobs are taken to run side by side, for the time left: Slurm does not say."""
GIBIBYTE = 2**30
OVERHEAD = 2 * GIBIBYTE
"""What Python, torch and unbraid take themselves."""


class Slurm(Cluster):
    """Slurm, or with `cluster="local"` processes of this machine, as submitit starts them."""

    def __init__(self, partition: str | None = None, cluster: Literal["slurm", "local"] = "slurm") -> None:
        self.partition, self.cluster = partition, cluster
        self._submitit = _import_submitit()
        self._folder: Path | None = None
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise UserError(
                "--on slurm was given and there is no sbatch here; accepted: a machine that submits to Slurm"
            )

    @property
    def slots(self) -> int:
        return SLOTS

    def open(self) -> None:
        """Jobs are passed as files, in a folder that compute nodes see as this one does."""
        if self._folder is None:
            self._folder = Path.cwd() / f".slurm-{uuid.uuid4().hex[:8]}"

    def check_room(self, name: str, needs: Needs) -> None:
        """Slurm refuses by itself what it has not got."""

    def submit(self, job: Job) -> Any:
        assert self._folder is not None
        executor = self._submitit.AutoExecutor(folder=self._folder, cluster=self.cluster)
        executor.update_parameters(timeout_min=MINUTES, name="unbraid", gpus_per_node=job.needs.gpus)
        if self.cluster == "slurm":
            gibibytes = -(-(job.needs.memory + OVERHEAD) // GIBIBYTE)
            executor.update_parameters(cpus_per_task=job.needs.threads, mem_gb=gibibytes)
            executor.update_parameters(**({"slurm_partition": self.partition} if self.partition else {}))
        with threads_each(job.needs.threads):
            return executor.submit(work, job)

    def outcome(self, handle: Any) -> Outcome | None:
        if not handle.done():
            return None
        try:
            return handle.result()
        except Exception as problem:  # of submitit, of the system, of reading what a job left
            raise Lost(f"job {handle.job_id} ended as {handle.state}: {_last_line(problem)}") from None

    def end(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            handle.cancel()

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None


def _last_line(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{lines[-1] if lines else type(problem).__name__:.200}"


def _import_submitit() -> Any:
    try:
        return importlib.import_module("submitit")
    except ImportError:
        raise UserError(
            "--on slurm was given and submitit is not installed; accepted: pip install 'unbraid[slurm]'"
        ) from None
