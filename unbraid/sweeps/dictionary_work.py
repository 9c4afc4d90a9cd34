"""Train and score one stack of dictionaries, with what is on disk taken as already done."""

import math
from collections.abc import Sequence

import torch

from unbraid.axes import Tensor
from unbraid.checkpoints import Checkpoint, load_latest, save_checkpoint
from unbraid.config import Tree
from unbraid.errors import NotFinite
from unbraid.files import Arrays, write_arrays, write_json
from unbraid.mechanisms import PairOrthogonality
from unbraid.members import across
from unbraid.metrics import recovery
from unbraid.progress import Watcher
from unbraid.runs import Log, Run, read_log
from unbraid.scoring import Scores, score, shown_cosines
from unbraid.signals import StopSignals
from unbraid.sweeps.grid import Member
from unbraid.sweeps.pair_stability import Columns, pair_stability
from unbraid.sweeps.tracker import Tracker
from unbraid.training.fit import inputs_of, train
from unbraid.training.schedule import rate_factor
from unbraid.training.step import Outcome, State, refuse_infinite

LAST = 0.1
"""The share of the log that tells how a training ended."""


class DictionaryWork:
    """What is left to do of one stack."""

    def __init__(self, run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals) -> None:
        self.index, self.group, self.watcher, self.signals = index, group, watcher, signals
        self.folder = run.stack(index)
        self.world = group[0].experiment.world
        self.saving = group[0].experiment.saving
        self.training = across([member.experiment.training for member in group])
        per_member = [member.experiment.enabled() for member in group]
        self.mechanisms = {name: across([each[name] for each in per_member]) for name in per_member[0]}
        seeds = [member.experiment.seed for member in group]
        dictionary = group[0].experiment.dictionary
        self.state = State.start(dictionary, self.world.dimensions, self.mechanisms, seeds)
        self.tracker = Tracker(self.folder, self.world, group[0].experiment.tracking, self.training.steps)

    def finish(self) -> None:
        if (self.folder / "scores.json").is_file():
            self.tracker.drop_directions()
            self.watcher.advance(self.index, self.training.steps)
            return
        write_json(self.folder / "members.json", [member.card() for member in self.group])
        checkpoint = self._newest_checkpoint()
        if checkpoint is not None:
            _restore(self.state, checkpoint)
        self.watcher.advance(self.index, self.state.step)
        with (
            Log(self.folder / "log.jsonl", keep=checkpoint.facts["log_bytes"] if checkpoint else 0) as log,
            self.signals.patience(),
        ):
            self._train(log)
        write_arrays(self.folder / "weights.safetensors", _arrays(self.state.stack.tensors()))
        if self.world.normalisation is not None:
            write_arrays(self.folder / "normalisation.safetensors", self.world.normalisation.arrays())
        self.watcher.stage(f"scoring stack {self.index + 1}")
        self._score()
        self.tracker.drop_directions()

    def _newest_checkpoint(self) -> Checkpoint | None:
        """The newest one that is whole and whose log is there; says what is passed over."""
        checkpoint, passed_over = load_latest(self.folder / "checkpoints")
        log = self.folder / "log.jsonl"
        if checkpoint and (not log.is_file() or log.stat().st_size < checkpoint.facts["log_bytes"]):
            checkpoint, passed_over = None, [*passed_over, f"{log} is shorter than the checkpoints say"]
        if checkpoint and not self.tracker.can_go_on_from(checkpoint.step):
            checkpoint, passed_over = None, [*passed_over, f"{self.folder / 'tracking'} lacks a check made before"]
        for sentence in passed_over:
            self.watcher.say(sentence)
        if passed_over:
            self.watcher.say(f"stack {self.index + 1} goes on from step {checkpoint.step if checkpoint else 0}")
        return checkpoint

    def _train(self, log: Log) -> None:
        try:
            if self.state.step == 0:
                self.tracker.look(self.state.stack, 0)
            for outcome in train(self.state, inputs_of(self.world, self.training), self.training, self.mechanisms):
                last = self.state.step == self.training.steps
                if self.state.step % self.saving.log_every == 0 or last:
                    self._write_line(log, outcome)
                self.tracker.look(self.state.stack, self.state.step)
                if self.signals.received is not None:
                    self._save(log)
                    where = f"and saved at step {self.state.step} of stack {self.index + 1}"
                    raise self.signals.stop(self.signals.received, where)
                if self.state.step % self.saving.checkpoint_every == 0 or last:
                    self._save(log)
                self.watcher.advance(self.index, self.state.step)
        except NotFinite as problem:
            raise self._explain(problem) from None

    def _write_line(self, log: Log, outcome: Outcome) -> None:
        line = {
            "step": self.state.step,
            "rate_factor": rate_factor(self.state.step - 1, self.training),
            "terms": {name: cost.tolist() for name, cost in outcome.terms.items()},
            "l0": outcome.l0.tolist(),
        }
        if self.world.is_planted:
            cosines = recovery.cosines(self.world.directions, self.state.stack.directions)
            line["mmcs"] = recovery.mmcs(cosines).tolist()
        log.append(line)
        self.watcher.show(self.index, line)

    def _save(self, log: Log) -> None:
        weights = {f"weights '{name}'": p.flatten(1).abs().amax(1) for name, p in self.state.stack.parameters().items()}
        refuse_infinite(weights, self.state.step)
        facts = {"log_bytes": log.size()}
        save_checkpoint(self.folder / "checkpoints", Checkpoint(self.state.step, _arrays(self.state.tensors()), facts))

    def _explain(self, problem: NotFinite) -> NotFinite:
        kept = sorted((self.folder / "checkpoints").glob("step-*.json"))
        good = f"the last good checkpoint is {kept[-1].with_suffix('')}" if kept else "no checkpoint was saved yet"
        who = {**self.group[problem.member].setting, "seed": self.group[problem.member].experiment.seed}
        return problem.with_advice(f" ({who}); {good}; look at training.learning_rate and the scale of the inputs")

    def _score(self) -> None:
        scores = score(self.state.stack, self.world, self.group[0].experiment.scoring.samples)
        tables = {**_arrays(scores.tables), **self._cosine_tables(scores)}
        tables["probabilities"] = self.world.probabilities.numpy()
        write_arrays(self.folder / "tables.safetensors", tables)
        values = {name: value.tolist() for name, value in {**scores.values, **self.tracker.conclude()}.items()}
        stable, luck = self._pair_stability()
        values |= stable | end_of_training(read_log(self.folder / "log.jsonl"))
        card = {"values": values, "chance": scores.chance | luck, "ceiling": scores.ceiling}
        write_json(self.folder / "scores.json", card)

    def _pair_stability(self) -> tuple[Columns, Columns]:
        """Where pairs are selected, whether they are the same again."""
        mechanism = self.mechanisms.get("pair_orthogonality")
        if not isinstance(mechanism, PairOrthogonality):
            return {}, {}
        return pair_stability(self.state.stack, self.world, mechanism, self.group)

    def _cosine_tables(self, scores: Scores) -> Arrays:
        """The cosine matrix of the first member of each setting, where there is a truth."""
        if not self.world.is_planted:
            return {}
        first = {str(member.setting): index for index, member in reversed(list(enumerate(self.group)))}
        directions, matched = self.state.stack.directions, scores.tables["match"]
        return {f"cosines.{i}": shown_cosines(self.world, directions[i], matched[i]) for i in first.values()}


def end_of_training(lines: Sequence[Tree]) -> Columns:
    """Each member's cost, all terms together, and the L0 of the codes it was trained with: means over the last tenth
    of the log. A mechanism may act on those codes, and not on the dictionary in use."""
    last = lines[-math.ceil(LAST * len(lines)) :]
    rows = {
        "loss": [[sum(parts) for parts in zip(*line["terms"].values(), strict=True)] for line in last],
        "training_l0": [line["l0"] for line in last],
    }
    return {name: [sum(each) / len(each) for each in zip(*found, strict=True)] for name, found in rows.items()}


def _arrays(tensors: dict[str, Tensor]) -> Arrays:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _restore(state: State, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's arrays back into the state, in place."""
    for name, tensor in state.tensors().items():
        tensor.copy_(torch.from_numpy(checkpoint.arrays[name]))
    state.step = checkpoint.step
