"""Jobs on a Ray cluster: `--on ray` is one that runs here, else one is started; `--on ray://HOST:10001` is anywhere."""

import importlib
import logging
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from unbraid.errors import Lost, UserError
from unbraid.pipeline.cluster import Cluster, Job, Outcome, work
from unbraid.pipeline.executors import THREADS, Needs
from unbraid.signals import NUMBERS

CLIENT_PORT = 10001
"""Of an address that names none."""
ANSWER_SECONDS = 10.0
ENDINGS = {
    "NodeDiedError": "its node died",
    "WorkerCrashedError": "its process died",
    "OutOfMemoryError": "its node ran out of memory",
    "TaskCancelledError": "it was cancelled",
}
"""What Ray says of a job that is gone, in our words."""


class RayCluster(Cluster):
    """A Ray cluster, by its address; None for the one of this machine."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address
        self._ray = _import_ray()
        self._is_ours = False
        self._nodes: list[dict[str, Any]] = []

    def open(self) -> None:
        """Ray answers signals in its own way, so whoever answered them before does so again."""
        if self._nodes:
            return
        if not self._ray.is_initialized():
            handlers = {number: signal.getsignal(number) for number in NUMBERS}
            try:
                self._check_answers()
                self._ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, ValueError, RuntimeError) as problem:
                words = str(problem).split("\n")[0].strip() or "nobody answers"
                raise UserError(
                    f"cannot reach Ray at {self.address or 'this machine'}: {words:.200}; accepted: the address of a "
                    "cluster that runs, as ray://host:10001"
                ) from None
            self._is_ours = True
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self._nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _check_answers(self) -> None:
        """Ray waits for minutes where nobody listens."""
        if self.address is not None:
            place = urlsplit(self.address if "://" in self.address else f"ray://{self.address}")
            socket.create_connection((place.hostname or "", place.port or CLIENT_PORT), ANSWER_SECONDS).close()

    @property
    def slots(self) -> int:
        return max(1, int(sum(node.get("CPU", 0) for node in self._nodes)))

    def check_room(self, name: str, needs: Needs) -> None:
        asked = {"CPU": needs.threads, "GPU": needs.gpus, "memory": needs.memory}
        if any(all(node.get(what, 0) >= amount for what, amount in asked.items()) for node in self._nodes):
            return
        largest = max((node.get("CPU", 0) for node in self._nodes), default=0)
        raise UserError(
            f"'{name}' takes {needs.threads} threads, {needs.gpus} GPUs and {needs.memory / 2**30:.1f} GiB, which no "
            f"node has (the largest has {largest:.0f} CPUs); accepted: larger nodes, or fewer threads here too, as "
            "OMP_NUM_THREADS=1"
        )

    def submit(self, job: Job) -> Any:
        needs = job.needs
        threads = {"env_vars": dict.fromkeys(THREADS, str(needs.threads))}
        options = {"num_cpus": needs.threads, "num_gpus": needs.gpus or None, "memory": needs.memory or None}
        function = self._ray.remote(work).options(**options, max_retries=0, runtime_env=threads, name=job.stage.kind)
        return function.remote(job)

    def outcome(self, handle: Any) -> Outcome | None:
        if not self._ray.wait([handle], timeout=0)[0]:
            return None
        try:
            return self._ray.get(handle)
        except self._ray.exceptions.RayError as problem:
            first = next((line.strip() for line in str(problem).splitlines() if line.strip()), "")
            name = type(problem).__name__
            raise Lost(ENDINGS.get(name, f"{name}: {first:.200}")) from None

    def end(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            self._ray.cancel(handle, force=True)

    def close(self) -> None:
        if self._is_ours:
            self._ray.shutdown()
            self._is_ours = False
        self._nodes = []


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        importlib.import_module("ray.exceptions")
        return importlib.import_module("ray")
    except ImportError:
        raise UserError("--on ray was given and Ray is not installed; accepted: pip install 'unbraid[ray]'") from None
