"""Train and score one stack of dictionaries, with what is on disk taken as already done."""

from collections.abc import Iterator, Sequence

from unbraid.axes import Tensor
from unbraid.config import Tree
from unbraid.files import Arrays, write_arrays, write_json
from unbraid.mechanisms import PairOrthogonality
from unbraid.members import across
from unbraid.metrics import recovery
from unbraid.progress import Watcher
from unbraid.runs import Run, read_log
from unbraid.scoring import Scores, score, shown_cosines
from unbraid.signals import StopSignals
from unbraid.sweeps.factor_work import tell_factors
from unbraid.sweeps.grid import Member
from unbraid.sweeps.pair_stability import Columns, pair_stability
from unbraid.sweeps.tracker import Tracker
from unbraid.sweeps.trained_work import TrainedWork, arrays
from unbraid.training.fit import inputs_of, train
from unbraid.training.schedule import rate_factor
from unbraid.training.step import Outcome, State
from unbraid.worlds import World


class DictionaryWork(TrainedWork[State, Outcome]):
    """What is left to do of one stack."""

    advice = "training.learning_rate and the scale of the inputs"

    def __init__(
        self, run: Run, index: int, group: list[Member], world: World, watcher: Watcher, signals: StopSignals
    ) -> None:
        super().__init__(run, index, group, watcher, signals)
        self.world = world
        self.training = across([member.experiment.training for member in group])
        self.steps = self.training.steps
        per_member = [member.experiment.enabled() for member in group]
        self.mechanisms = {name: across([each[name] for each in per_member]) for name in per_member[0]}
        seeds = [member.experiment.seed for member in group]
        dictionary = group[0].experiment.dictionary
        self.state = State.start(dictionary, self.world.dimensions, self.mechanisms, seeds)
        self.tracker = Tracker(self.folder, self.world, group[0].experiment.tracking, self.training.steps)

    def train(self) -> Iterator[Outcome]:
        return train(self.state, inputs_of(self.world, self.training), self.training, self.mechanisms)

    def line(self, report: Outcome) -> Tree:
        line = {
            "step": self.state.step,
            "rate_factor": rate_factor(self.state.step - 1, self.training),
            "terms": {name: cost.tolist() for name, cost in report.terms.items()},
            "l0": report.l0.tolist(),
        }
        if self.world.is_planted:
            cosines = recovery.cosines(self.world.directions, self.state.stack.directions)
            line["mmcs"] = recovery.mmcs(cosines).tolist()
        return line

    def look(self) -> None:
        self.tracker.look(self.state.stack, self.state.step)

    def lacks(self, step: int) -> str | None:
        return None if self.tracker.can_go_on_from(step) else f"{self.folder / 'tracking'} lacks a check made before"

    def clear(self) -> None:
        self.tracker.drop_directions()

    def weights(self) -> dict[str, Tensor]:
        return self.state.stack.tensors()

    def score(self) -> None:
        if self.world.normalisation is not None:
            write_arrays(self.folder / "normalisation.safetensors", self.world.normalisation.arrays())
        scores = score(self.state.stack, self.world, self.group[0].experiment.scoring.samples)
        tables = {**arrays(scores.tables), **self._cosine_tables(scores)}
        tables["probabilities"] = self.world.probabilities.numpy()
        write_arrays(self.folder / "tables.safetensors", tables)
        values = {name: value.tolist() for name, value in {**scores.values, **self.tracker.conclude()}.items()}
        stable, luck = self._pair_stability()
        values |= stable | end_of_training(read_log(self.folder / "log.jsonl"))
        told = tell_factors(self.state.stack, self.world, self.group, self.folder)
        card = {
            "values": values | told.values,
            "chance": scores.chance | luck | told.chance,
            "ceiling": scores.ceiling | told.ceiling,
        }
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
        directions, matched = self.state.stack.directions, scores.tables["match"]
        return {f"cosines.{i}": shown_cosines(self.world, directions[i], matched[i]) for i in self.first_of_settings()}


def end_of_training(lines: Sequence[Tree]) -> Columns:
    """Each member's cost, all terms together, and the L0 of the codes it was trained with, at the last step: its line
    is there however often others are logged. A mechanism may act on those codes, and not on the dictionary in use."""
    last = lines[-1]
    return {"loss": [sum(parts) for parts in zip(*last["terms"].values(), strict=True)], "training_l0": last["l0"]}
