"""What every training has in common: it logs, saves checkpoints, and goes on after a kill with the same bits.

log.jsonl            a line every `log_every` steps
checkpoints/         the last two, each bound to the stage's key and to what the log and other files held then
weights.safetensors  what was learned, by name, the member axis first
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.config import Config, JsonDict
from unbraid.errors import NotFinite
from unbraid.pipeline.stage import Context
from unbraid.schedule import check_finite
from unbraid.storage.checkpoints import Checkpoint, Log, load_latest, matches_mark, save_checkpoint
from unbraid.storage.files import Arrays, read_arrays, sha256
from unbraid.storage.pieces import Piecewise, map_arrays, write_pieces


class Checkpoints(Config):
    """How often training logs and saves; neither changes the result."""

    log_every: int = Field(default=50, ge=1, le=10**12)
    """Steps between two lines of the log. Raising it makes curves coarser and the log smaller."""
    every: int = Field(default=250, ge=1, le=10**12)
    """Steps between two checkpoints. Raising it saves disk writes and loses more work when a run is killed."""

    renamed: ClassVar[dict[str, str]] = {"checkpoint_every": "every"}


@runtime_checkable
class Saved(Protocol):
    """A state of training: what `tensors` gives and the step are all it takes to go on."""

    step: int

    def tensors(self) -> dict[str, Tensor]: ...


State = TypeVar("State", bound=Saved)
Output = TypeVar("Output")


class TrainingLoop(ABC, Generic[State, Output]):
    """The training of one stack, whose state goes on step by step, each with an output."""

    state: State
    steps: int
    advice: str
    """What to look at when a loss is not finite."""

    def __init__(self, key: str, names: Sequence[str], checkpoints: Checkpoints, context: Context) -> None:
        """`names` are the members' names, for messages."""
        self.key, self.names, self.checkpoints, self.context = key, names, checkpoints, context
        self.folder, self.progress = context.folder, context.progress
        self._began, self._worked = time.monotonic(), 0.0

    @abstractmethod
    def train(self) -> Iterator[Output]:
        """Go on from the state, a step at a time."""

    @abstractmethod
    def log_line(self, output: Output) -> JsonDict:
        """What the log says of a step: at least `step` and `terms`."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """What was learned, by name, each with the member axis first."""

    def after_step(self) -> None:
        """Whatever else is done at this step."""

    def side_files(self) -> list[Path]:
        """Files beside the log that going on from here needs."""
        return []

    @property
    def seconds(self) -> float:
        """Worked on this stack's training so far, before a stop too."""
        return self._worked + time.monotonic() - self._began

    def finish(self) -> None:
        """Train what is left, and write the weights."""
        checkpoint = self._newest_checkpoint()
        if checkpoint is not None:
            self.restore(checkpoint)
            self.state.step = checkpoint.step
            self._worked = checkpoint.facts["seconds"]
        self._began = time.monotonic()
        self.progress.begin(self.state.step)
        with (
            Log(self.folder / "log.jsonl", keep=checkpoint.facts["log"]["bytes"] if checkpoint else 0) as log,
            self.context.signals.patience(),
        ):
            self._train(log)
        write_pieces(self.folder / "weights.safetensors", self.arrays(self.weights()))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put what a checkpoint holds back into the state."""
        restore(self.state, checkpoint.arrays)

    def arrays(self, tensors: dict[str, Tensor]) -> Mapping[str, np.ndarray | Piecewise]:
        """These tensors of the state, or of the weights, as files hold them."""
        return arrays(tensors)

    def check_weights(self) -> None:
        """NotFinite, where a weight is not."""
        largest = {f"weights '{name}'": p.reshape(len(p), -1).abs().amax(1) for name, p in self.weights().items()}
        check_finite(largest, self.state.step)

    def _newest_checkpoint(self) -> Checkpoint | None:
        """The newest one that is whole and whose log and other files are as they were; says what is passed over."""
        checkpoint, passed_over = load_latest(self.folder / "checkpoints", self.key, map_arrays)
        if checkpoint and (lack := self._lack(checkpoint)):
            checkpoint, passed_over = None, [*passed_over, lack]
        for sentence in passed_over:
            self.progress.say(sentence)
        if passed_over:
            self.progress.say(f"{self.names[0]} goes on from step {checkpoint.step if checkpoint else 0}")
        return checkpoint

    def _lack(self, checkpoint: Checkpoint) -> str | None:
        """What going on from a checkpoint would need that is not there, in words."""
        log = self.folder / "log.jsonl"
        if not matches_mark(log, checkpoint.facts["log"]):
            return f"{log} is not what it was at the checkpoint of step {checkpoint.step}"
        if unsaved := sorted(self.state.tensors().keys() - checkpoint.arrays.keys()):
            return f"the checkpoint at step {checkpoint.step} is of an older version: it has no '{unsaved[0]}'"
        for name, expected in checkpoint.facts["files"].items():
            path = self.folder / name
            if not path.is_file() or sha256(path.read_bytes()) != expected:
                return f"{path} is not what it was at the checkpoint of step {checkpoint.step}"
        return None

    def _train(self, log: Log) -> None:
        try:
            if self.state.step == 0:
                self.after_step()
            for output in self.train():
                last = self.state.step == self.steps
                if self.state.step % self.checkpoints.log_every == 0 or last:
                    line = self.log_line(output)
                    log.append(line)
                    self.progress.log(line)
                self.after_step()
                if (signal := self.context.signals.received) is not None:
                    self._save(log)
                    where = f"and saved {self.names[0]} at step {self.state.step}"
                    raise self.context.signals.stop(signal, where)
                if self.state.step % self.checkpoints.every == 0 or last:
                    self._save(log)
                self.progress.advance(self.state.step)
        except NotFinite as problem:
            raise self._explain(problem) from None

    def _save(self, log: Log) -> None:
        self.check_weights()
        files = {str(path.relative_to(self.folder)): sha256(path.read_bytes()) for path in self.side_files()}
        facts: dict[str, Any] = {"log": log.mark(), "files": files, "seconds": self.seconds}
        checkpoint = Checkpoint(self.state.step, self.arrays(self.state.tensors()), facts)
        save_checkpoint(self.folder / "checkpoints", checkpoint, self.key)

    def _explain(self, problem: NotFinite) -> NotFinite:
        kept = sorted((self.folder / "checkpoints").glob("step-*.json"))
        good = f"the last good checkpoint is {kept[-1].with_suffix('')}" if kept else "no checkpoint was saved yet"
        return problem.with_advice(f" ({self.names[problem.member]}); {good}; look at {self.advice}")


def arrays(tensors: dict[str, Tensor]) -> Arrays:
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def restore(state: Saved, saved: Mapping[str, Any]) -> None:
    """Put saved arrays back into the tensors of a state, in place."""
    with torch.no_grad():
        for name, tensor in state.tensors().items():
            tensor.copy_(torch.from_numpy(np.array(saved[name])))


def restore_weights(weights: dict[str, Tensor], folder: Path) -> None:
    """Put what a training has written back into weights that were started like its own, in place."""
    saved = read_arrays(folder / "weights.safetensors")
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(torch.from_numpy(saved[name]))
