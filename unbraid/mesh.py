"""Processes that train one dictionary together, and the one door through which they talk (torch.distributed, gloo).

    rank = data rank · shards + shard

Shard s keeps the features `part(f, shards, s)` of a dictionary, data rank r learns from the samples `part(b, data, r)`
of a batch. Whatever one process tells another goes through `Mesh`, which counts its bytes.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from unbraid.axes import Tensor
from unbraid.errors import Lost

Over = Literal["everyone", "shards", "data"]
PATIENCE = timedelta(minutes=30)
"""So long a process waits in the middle of a step for one that is there and does not answer."""
FOR_WORK = timedelta(days=365)
"""So long one waits for the first process to say what is next: it may be evaluating."""


def part(total: int, parts: int, index: int) -> slice:
    """Which of `total` things in a row this part has; where they do not come out even, the first parts have one more.

    Examples
    --------
    >>> from unbraid.mesh import part
    >>> [part(10, 3, index) for index in range(3)]
    [slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
    """
    size, more = divmod(total, parts)
    start = index * size + min(index, more)
    return slice(start, start + size + (index < more))


def launched() -> bool:
    """Whether torchrun, or whoever sets the same variables, has started several processes of this command."""
    names = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return names <= os.environ.keys() and int(os.environ["WORLD_SIZE"]) > 1


def here(workers: int) -> int:
    """How many of these processes are on this machine: all, unless torchrun says otherwise."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", workers)) if launched() else workers


@dataclass(frozen=True)
class Mesh:
    """The place of this process among those that train together; alone, nothing is ever sent."""

    rank: int = 0
    shards: int = 1
    data: int = 1
    groups: dict[str, Any] = field(default_factory=dict, repr=False)
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes that this process gave to others to sum or to see, by what they were."""

    @classmethod
    def join(cls, rank: int, size: int, init: str) -> "Mesh":
        """Take this place among `size` processes; `init` is where they meet, as torch.distributed takes it."""
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # who is lost is said once, by us
        _or_lost(lambda: dist.init_process_group("gloo", init, PATIENCE, size, rank))
        return cls(rank, size, groups={"commands": _or_lost(lambda: dist.new_group(timeout=FOR_WORK))})

    def in_shards(self, shards: int) -> "Mesh":
        """The same processes, with features in so many shards; all call it together."""
        data, groups = self.size // shards, {"commands": self.groups["commands"]}
        groups["everyone"] = _or_lost(lambda: dist.new_group(timeout=PATIENCE))
        for index in range(data):
            ranks = [index * shards + shard for shard in range(shards)]
            group = _group(ranks)
            groups |= {"shards": group} if self.rank in ranks else {}
        for shard in range(shards):
            ranks = [index * shards + shard for index in range(data)]
            group = _group(ranks)
            groups |= {"data": group} if self.rank in ranks else {}
        return Mesh(self.rank, shards, data, groups, self.sent)

    @property
    def size(self) -> int:
        return self.shards * self.data

    @property
    def shard(self) -> int:
        return self.rank % self.shards

    @property
    def data_rank(self) -> int:
        return self.rank // self.shards

    def features(self, total: int, shard: int | None = None) -> slice:
        """The features of a shard, by default of this process."""
        return part(total, self.shards, self.shard if shard is None else shard)

    def samples(self, total: int, data_rank: int | None = None) -> slice:
        """The samples of a batch that a data rank learns from, by default of this process."""
        return part(total, self.data, self.data_rank if data_rank is None else data_rank)

    def among(self, over: Over) -> int:
        return {"everyone": self.size, "shards": self.shards, "data": self.data}[over]

    def sum(self, tensor: Tensor, over: Over, what: str) -> Tensor:
        """The sum of everybody's, the same bits for everybody; in place, where memory allows it."""
        if self.among(over) == 1:
            return tensor
        tensor = tensor.contiguous()
        self._count(what, tensor)
        _or_lost(lambda: dist.all_reduce(tensor, group=self.groups[over]))
        return tensor

    def gather(self, tensor: Tensor, over: Over, what: str) -> Tensor:
        """Everybody's, which are of one shape, along a new first axis."""
        if self.among(over) == 1:
            return tensor[None]
        tensor = tensor.contiguous()
        self._count(what, tensor)
        everybody = tensor.new_empty(self.among(over), *tensor.shape)
        _or_lost(lambda: dist.all_gather(list(everybody.unbind()), tensor, group=self.groups[over]))
        return everybody

    def command(self, *numbers: int) -> list[int]:
        """The first process says what is next, in three numbers; the others hear it."""
        words = torch.tensor([*numbers, 0, 0, 0][:3])
        if self.size > 1:
            _or_lost(lambda: dist.broadcast(words, 0, self.groups["commands"]))
        return words.tolist()

    def tell(self, thing: Any) -> Any:
        """What the first process gives is what everybody gets: for small things, between steps."""
        things = [thing]
        if self.size > 1:
            _or_lost(lambda: dist.broadcast_object_list(things, 0, self.groups["commands"]))
        return things[0]

    def send(self, tensor: Tensor) -> None:
        """To the first process."""
        tensor = tensor.contiguous()
        self._count("gathered", tensor)
        _or_lost(lambda: dist.send(tensor, 0))

    def receive(self, like: Tensor, rank: int) -> Tensor:
        """What another sends to the first process."""
        empty = torch.empty_like(like, memory_format=torch.contiguous_format)
        _or_lost(lambda: dist.recv(empty, rank))
        return empty

    def leave(self) -> None:
        if self.groups:
            dist.destroy_process_group()

    def _count(self, what: str, tensor: Tensor) -> None:
        self.sent[what] += tensor.nbytes


ALONE = Mesh()
"""A process that trains by itself."""


def _group(ranks: list[int]) -> Any:
    """All processes make it, also those that are not in it."""
    return _or_lost(lambda: dist.new_group(ranks, timeout=PATIENCE))


def _or_lost(talk: Callable[[], Any]) -> Any:
    """A connection that breaks means that a process is gone: the others cannot go on without its features."""
    try:
        return talk()
    except RuntimeError as problem:
        if "memory" in str(problem):
            raise
        raise Lost("one of the processes that train together is gone") from None
