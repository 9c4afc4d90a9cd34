"""The training of one stack whose features are shared out among processes: the first leads, the others follow.

The first process logs, checks, saves and hears signals; before each thing that takes all of them it says what it is.
Weights and moments are never in one process: a checkpoint is written as its rows arrive, in the format of one process,
and read by each process as far as it needs. So a training goes on with any number of processes.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

from unbraid.axes import Tensor
from unbraid.dictionaries import Stack
from unbraid.dictionaries.training.adam import WITHOUT_FEATURES
from unbraid.dictionaries.training.sharded_step import sharded_step
from unbraid.dictionaries.training.step import StepOutput
from unbraid.errors import Lost, NotFinite, UserError, one_line
from unbraid.mesh import Mesh, launched
from unbraid.pipeline.dictionary_stages import StackTraining, TrainStack
from unbraid.pipeline.executors import PROCESSES, held_back, threads_each
from unbraid.pipeline.stage import Context
from unbraid.progress import Silent, TaskProgress
from unbraid.schedule import check_finite
from unbraid.signals import NUMBERS, StopSignals
from unbraid.storage.cache import Cache
from unbraid.storage.checkpoints import Checkpoint
from unbraid.storage.pieces import Piecewise, map_arrays


class Say(IntEnum):
    """What the first process says is next."""

    STEP, SEND, CHECK, RESTORE, END, TRAIN, LEAVE = range(7)


class ShardedTraining(StackTraining):
    """One process's part of a training; on the first one, the training as it is seen from outside."""

    def __init__(self, stage: TrainStack, context: Context, mesh: Mesh) -> None:
        self.mesh, self.features = mesh, stage.members[0].dictionary.d_sae
        super().__init__(stage, context, mesh.features(self.features))

    def finish(self) -> None:
        super().finish()
        self.mesh.command(Say.END)

    def train(self) -> Iterator[StepOutput]:
        while self.state.step < self.steps:
            self.mesh.command(Say.STEP)
            yield self._step()

    def follow(self) -> int:
        """Do one's part of whatever the first process says, until it says that this is all; gives its last word."""
        while (said := self.mesh.command())[0] not in (Say.END, Say.LEAVE):
            match said:
                case [Say.STEP, _, _]:
                    self._step()
                case [Say.SEND, index, member]:
                    self._send(index, member)
                case [Say.CHECK, _, _]:
                    self._count_bad()
                case [Say.RESTORE, step, _]:
                    self._restore(step)
        return said[0]

    def _step(self) -> StepOutput:
        inputs = self.source(self.state.step)
        return sharded_step(self.state, inputs, self.training, self.mechanisms, self.features, self.mesh)

    def directions(self) -> Tensor:
        rows = self._gathered("stack.encoder" if self.state.stack.is_transcoder else "stack.decoder")
        return normalize(rows, dim=-1)

    def in_use(self) -> Stack:
        tensors = {name: self._gathered(f"stack.{name}") for name in self.state.stack.tensors()}
        return Stack.of(tensors, self.state.stack.activation)

    def arrays(self, tensors: dict[str, Tensor]) -> Mapping[str, np.ndarray | Piecewise]:
        """As files hold them: what has features comes from everybody while it is written."""
        known = self.state.tensors()
        names = {name: name if name in known else f"stack.{name}" for name in tensors}
        return {
            name: self._whole(full) if self._is_split(full) else tensors[name].numpy() for name, full in names.items()
        }

    def _whole(self, name: str) -> Piecewise:
        tensor = self.state.tensors()[name]
        shape = (len(tensor), self.features, *tensor.shape[2:])
        return Piecewise(tensor.numpy().dtype, shape, self._pieces(name))

    def _pieces(self, name: str) -> Iterator[np.ndarray]:
        """Member after member, shard after shard."""
        named = self.state.tensors()
        for member, own in enumerate(named[name]):
            self.mesh.command(Say.SEND, list(named).index(name), member)
            yield own.numpy()
            for shard in range(1, self.mesh.shards):
                rows = self.mesh.features(self.features, shard)
                yield self.mesh.receive(own.new_empty(rows.stop - rows.start, *own.shape[1:]), shard).numpy()

    def _gathered(self, name: str) -> Tensor:
        tensor = self.state.tensors()[name]
        if not self._is_split(name):
            return tensor
        pieces = [torch.from_numpy(piece) for piece in self._pieces(name)]
        return torch.cat(pieces).view(len(tensor), self.features, *tensor.shape[2:])

    def _send(self, index: int, member: int) -> None:
        if self.mesh.data_rank == 0:
            self.mesh.send(list(self.state.tensors().values())[index][member])

    def _is_split(self, name: str) -> bool:
        """Whether a tensor of the state has features; all processes have the others."""
        group, _, own = name.partition(".")
        return group != "memory" and own not in {*WITHOUT_FEATURES, *self.state.stack.memory, "sites"}

    def check_weights(self) -> None:
        self.mesh.command(Say.CHECK)
        bad = zip(self.weights(), self._count_bad(), strict=True)
        check_finite({f"weights '{name}'": 1 / (count == 0) for name, count in bad}, self.state.step)

    def _count_bad(self) -> Tensor:
        """How many numbers of each weight and member are not finite."""
        bad = [(~tensor.isfinite()).flatten(1).sum(1) for tensor in self.weights().values()]
        return self.mesh.sum(torch.stack(bad), "everyone", "finite")

    def restore(self, checkpoint: Checkpoint) -> None:
        self.mesh.command(Say.RESTORE, checkpoint.step)
        self._restore(checkpoint.step)

    def _restore(self, step: int) -> None:
        """Own rows of a checkpoint that the first process has verified."""
        saved = map_arrays(self.folder / "checkpoints" / f"step-{step:09d}.safetensors")
        rows = self.mesh.features(self.features)
        with torch.no_grad():
            for name, tensor in self.state.tensors().items():
                array = saved[name][:, rows] if self._is_split(name) else saved[name]
                tensor.copy_(torch.from_numpy(np.array(array)))
        self.state.step = step


def train_sharded(stage: TrainStack, context: Context) -> None:
    """Train a stack with others: those that torchrun has started, or as many as the stage asks for."""
    with ExitStack() as stack:
        others = [] if _MESH else stack.enter_context(_spawned(stage.workers))
        try:
            _lead(stage, context, _MESH[0])
            if others:
                _MESH[0].command(Say.LEAVE)
            for process in others:
                process.join()
        except Lost:
            kept = f"what was saved is kept; go on with: {context.signals.resume_command}"
            raise Lost(f"{_what_became_of(others)}; {kept}") from None


def _lead(stage: TrainStack, context: Context, mesh: Mesh) -> None:
    shards = stage.shards or mesh.size
    mesh.command(Say.TRAIN)
    mesh.tell((stage, context.cache.path.absolute(), context.inputs, shards))
    ShardedTraining(stage, context, mesh.in_shards(shards)).finish()


_MESH: list[Mesh] = []
"""The one mesh that this process is in, while it is: torch.distributed has one for each process."""


@contextmanager
def _spawned(size: int) -> Iterator[list[Any]]:
    """The others, started here and gone afterwards; each has its share of the threads."""
    before = torch.get_num_threads()
    threads, others = max(1, before // size), []
    with tempfile.TemporaryDirectory() as folder:
        init = f"file://{folder}/meeting"
        try:
            with held_back(), threads_each(threads):
                for rank in range(1, size):
                    others.append(PROCESSES.Process(target=_work, args=(rank, size, init, threads)))
                    others[-1].start()
            torch.set_num_threads(threads)
            _MESH.append(Mesh.join(0, size, init))
            yield others
        finally:
            for process in others:
                process.kill()
                process.join()
            torch.set_num_threads(before)
            for mesh in _MESH:
                mesh.leave()
            _MESH.clear()


def _what_became_of(others: list[Any]) -> str:
    """Of the process whose end ended the training: the first that is seen to have gone."""
    for process in others:
        process.join(1.0)
    gone = [(rank, process.exitcode) for rank, process in enumerate(others, 2) if process.exitcode]
    rank, code = min(gone, key=lambda pair: pair[1], default=(0, 0))
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"process {rank} of {len(others) + 1} {how}" if rank else "one of the processes that train together is gone"


def _work(rank: int, size: int, init: str, threads: int) -> None:
    """What a process does that the first one has started."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    sys.exit(_serve(lambda: Mesh.join(rank, size, init), says_lost=False))


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "it is always started by a parent"
    parent.join()
    os._exit(1)


def _serve(join: Callable[[], Mesh], says_lost: bool) -> int:
    """Follow the first process through one training after the other. What stops all of them it says itself."""
    try:
        mesh, said = join(), Say.END
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)  # the first process hears them, saves, and lets the others go
        while said != Say.LEAVE and mesh.command()[0] == Say.TRAIN:
            stage, cache, inputs, shards = mesh.tell(None)
            progress, signals = TaskProgress(Silent(), 0), StopSignals("")
            context = Context(cache / stage.key, Cache(cache), progress, signals, inputs)
            said = ShardedTraining(stage, context, mesh.in_shards(shards)).follow()
        mesh.leave()
    except NotFinite:
        return 1
    except Lost as problem:
        return _say(problem) if says_lost else 1
    except (UserError, OSError, MemoryError) as problem:
        return _say(problem)
    return 0


def _say(problem: Exception) -> int:
    print(f"unbraid: {one_line(str(problem) or 'this machine has not enough memory')}", file=sys.stderr)
    return 1


def torchruns() -> Mesh:
    """The mesh of the processes that torchrun has started, of which this is one; met where torchrun says."""
    return Mesh.join(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")


@contextmanager
def first_of_torchruns() -> Iterator[bool]:
    """Whether this process does the run, alone or as torchrun's first; the others follow it in here, until it is done.

    A process that followed exits with its code where that is not 0.
    """
    if not launched():
        yield True
    elif int(os.environ["RANK"]) > 0:
        if code := _serve(torchruns, says_lost=True):
            raise SystemExit(code)
        yield False
    else:
        _MESH.append(torchruns())
        try:
            yield True
        finally:
            with suppress(Lost):
                _MESH[0].command(Say.LEAVE)
            _MESH.pop().leave()
