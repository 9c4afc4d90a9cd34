"""What the work of any stack that trains step by step has in common: it logs, saves, goes on after a kill, and scores.

What is on disk is taken as already done; a resumed run writes the same bytes as one never stopped.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch

from unbraid.axes import Tensor
from unbraid.checkpoints import Checkpoint, load_latest, save_checkpoint
from unbraid.config import Tree
from unbraid.errors import NotFinite
from unbraid.files import Arrays, write_arrays, write_json
from unbraid.progress import Watcher
from unbraid.runs import Log, Run
from unbraid.signals import StopSignals
from unbraid.sweeps.grid import Member
from unbraid.training.step import refuse_infinite


@runtime_checkable
class Saved(Protocol):
    """A state of training: what `tensors` gives and the step are all it takes to go on."""

    step: int

    def tensors(self) -> dict[str, Tensor]: ...


State = TypeVar("State", bound=Saved)
Report = TypeVar("Report")


class TrainedWork(ABC, Generic[State, Report]):
    """What is left to do of one stack, whose state goes on step by step, each with a report."""

    state: State
    steps: int
    advice: str
    """What to look at when a cost is not finite."""

    def __init__(self, run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals) -> None:
        self.index, self.group, self.watcher, self.signals = index, group, watcher, signals
        self.folder = run.stack(index)
        self.saving = group[0].experiment.saving
        self._began, self._worked = time.monotonic(), 0.0

    @abstractmethod
    def train(self) -> Iterator[Report]:
        """Go on from the state, a step at a time."""

    @abstractmethod
    def line(self, report: Report) -> Tree:
        """What the log says of a step: at least `step` and `terms`."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """What was learned, by name, each with the member axis first."""

    @abstractmethod
    def score(self) -> None:
        """Write the tables, and last the scores, which make the stack count as done."""

    def look(self) -> None:
        """Whatever else is done at this step."""

    def lacks(self, step: int) -> str | None:
        """What going on from this step would need that is not there, in words."""
        return None

    def clear(self) -> None:
        """Remove what only training needed."""

    @property
    def seconds(self) -> float:
        """Worked on this stack's training so far, before a stop too."""
        return self._worked + time.monotonic() - self._began

    def finish(self) -> None:
        if (self.folder / "scores.json").is_file():
            self.clear()
            self.watcher.advance(self.index, self.steps)
            return
        write_json(self.folder / "members.json", [member.card() for member in self.group])
        checkpoint = self._newest_checkpoint()
        if checkpoint is not None:
            _restore(self.state, checkpoint)
            self._worked = checkpoint.facts.get("seconds", 0.0)
        self._began = time.monotonic()
        self.watcher.advance(self.index, self.state.step)
        with (
            Log(self.folder / "log.jsonl", keep=checkpoint.facts["log_bytes"] if checkpoint else 0) as log,
            self.signals.patience(),
        ):
            self._train(log)
        write_arrays(self.folder / "weights.safetensors", arrays(self.weights()))
        self.watcher.stage(f"scoring stack {self.index + 1}")
        self.score()
        self.clear()

    def _newest_checkpoint(self) -> Checkpoint | None:
        """The newest one that is whole and whose log is there; says what is passed over."""
        checkpoint, passed_over = load_latest(self.folder / "checkpoints")
        log = self.folder / "log.jsonl"
        if checkpoint and (not log.is_file() or log.stat().st_size < checkpoint.facts["log_bytes"]):
            checkpoint, passed_over = None, [*passed_over, f"{log} is shorter than the checkpoints say"]
        if checkpoint and (unsaved := sorted(self.state.tensors().keys() - checkpoint.arrays.keys())):
            older = f"the checkpoint at step {checkpoint.step} is of an older version: it has no '{unsaved[0]}'"
            checkpoint, passed_over = None, [*passed_over, older]
        if checkpoint and (lack := self.lacks(checkpoint.step)):
            checkpoint, passed_over = None, [*passed_over, lack]
        for sentence in passed_over:
            self.watcher.say(sentence)
        if passed_over:
            self.watcher.say(f"stack {self.index + 1} goes on from step {checkpoint.step if checkpoint else 0}")
        return checkpoint

    def _train(self, log: Log) -> None:
        try:
            if self.state.step == 0:
                self.look()
            for report in self.train():
                last = self.state.step == self.steps
                if self.state.step % self.saving.log_every == 0 or last:
                    line = self.line(report)
                    log.append(line)
                    self.watcher.show(self.index, line)
                self.look()
                if self.signals.received is not None:
                    self._save(log)
                    where = f"and saved at step {self.state.step} of stack {self.index + 1}"
                    raise self.signals.stop(self.signals.received, where)
                if self.state.step % self.saving.checkpoint_every == 0 or last:
                    self._save(log)
                self.watcher.advance(self.index, self.state.step)
        except NotFinite as problem:
            raise self._explain(problem) from None

    def _save(self, log: Log) -> None:
        largest = {f"weights '{name}'": p.reshape(len(p), -1).abs().amax(1) for name, p in self.weights().items()}
        refuse_infinite(largest, self.state.step)
        facts = {"log_bytes": log.size(), "seconds": self.seconds}
        save_checkpoint(self.folder / "checkpoints", Checkpoint(self.state.step, arrays(self.state.tensors()), facts))

    def _explain(self, problem: NotFinite) -> NotFinite:
        kept = sorted((self.folder / "checkpoints").glob("step-*.json"))
        good = f"the last good checkpoint is {kept[-1].with_suffix('')}" if kept else "no checkpoint was saved yet"
        who = {**self.group[problem.member].setting, "seed": self.group[problem.member].experiment.seed}
        return problem.with_advice(f" ({who}); {good}; look at {self.advice}")

    def first_of_settings(self) -> list[int]:
        """The position of the first member of each setting in this stack."""
        return first_of_settings(self.group)


def first_of_settings(group: Sequence[Member]) -> list[int]:
    """The position of the first member of each setting among these."""
    first = {str(member.setting): index for index, member in reversed(list(enumerate(group)))}
    return sorted(first.values())


def arrays(tensors: dict[str, Tensor]) -> Arrays:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def _restore(state: Saved, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's arrays back into the state, in place."""
    with torch.no_grad():
        for name, tensor in state.tensors().items():
            tensor.copy_(torch.from_numpy(checkpoint.arrays[name]))
    state.step = checkpoint.step
