"""Meshes for tests: processes that are threads of one process, where nobody waits for gloo to start."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from unbraid.axes import Tensor
from unbraid.mesh import Mesh, Over


class Meeting:
    """Where threads meet: each brings something, and all see what was brought, in the order of their ranks."""

    def __init__(self, size: int) -> None:
        self.barrier, self.brought = threading.Barrier(size, timeout=60), [None] * size

    def meet(self, rank: int, thing: Any) -> list[Any]:
        self.brought[rank] = thing
        self.barrier.wait()
        seen = list(self.brought)
        self.barrier.wait()
        return seen


@dataclass(frozen=True)
class ThreadMesh(Mesh):
    """A mesh whose collectives are sums and lists that a test can read."""

    meeting: Any = field(default=None, repr=False)

    def _others(self, tensor: Tensor, over: Over) -> list[Tensor]:
        everybody = self.meeting.meet(self.rank, tensor.clone())
        ranks = {
            "everyone": range(self.size),
            "shards": range(self.data_rank * self.shards, (self.data_rank + 1) * self.shards),
            "data": range(self.shard, self.size, self.shards),
        }
        return [everybody[rank] for rank in ranks[over]]

    def sum(self, tensor: Tensor, over: Over, what: str) -> Tensor:
        if self.among(over) == 1:
            return tensor
        self._count(what, tensor)
        return torch.stack(self._others(tensor, over)).sum(0)

    def gather(self, tensor: Tensor, over: Over, what: str) -> Tensor:
        if self.among(over) == 1:
            return tensor[None]
        self._count(what, tensor)
        return torch.stack(self._others(tensor, over))


def in_threads(shards: int, data: int, work: Callable[[Mesh], Any]) -> list[Any]:
    """What each process of such a mesh returns."""
    size, meeting = shards * data, Meeting(shards * data)

    def one(rank: int) -> Any:
        try:
            return work(ThreadMesh(rank, shards, data, meeting=meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
    problems = [problem for future in futures if (problem := future.exception()) is not None]
    broken = [problem for problem in problems if not isinstance(problem, threading.BrokenBarrierError)]
    for problem in (*broken, *problems):
        raise problem
    return [future.result() for future in futures]
