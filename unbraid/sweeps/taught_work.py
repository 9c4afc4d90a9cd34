"""What the work of any stack of models has in common, whatever they are asked: how they are taught and logged."""

from collections.abc import Iterator

from unbraid.axes import Tensor
from unbraid.config import Tree
from unbraid.files import write_json
from unbraid.members import across
from unbraid.progress import Watcher
from unbraid.runs import Run
from unbraid.signals import StopSignals
from unbraid.sweeps.grid import Member
from unbraid.sweeps.trained_work import TrainedWork
from unbraid.training.schedule import rate_factor
from unbraid.training.teaching import Lesson, Pupils, teach

Named = dict[str, Tensor]


class TaughtWork(TrainedWork[Pupils, Lesson]):
    """What is left to do of one stack; `timing.json` has the seconds of teaching, which no seed decides."""

    advice = "teaching.learning_rate, teaching.clip and the weights of constraints"

    def __init__(self, run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals) -> None:
        super().__init__(run, index, group, watcher, signals)
        first = group[0].experiment
        self.asking, self.examining = first.asking, first.examining
        self.teaching = across([member.experiment.teaching for member in group])
        self.steps = self.teaching.steps
        per_member = [member.experiment.constraining() for member in group]
        self.constraints = {name: across([each[name] for each in per_member]) for name in per_member[0]}
        self.state = Pupils.start(first.model, self.asking, [member.experiment.seed for member in group])

    def train(self) -> Iterator[Lesson]:
        return teach(self.state, self.asking, self.teaching, self.constraints)

    def line(self, report: Lesson) -> Tree:
        return {
            "step": self.state.step,
            "rate_factor": rate_factor(self.state.step - 1, self.teaching),
            "terms": {name: cost.tolist() for name, cost in report.terms.items()},
            "accuracy": report.accuracy.tolist(),
        }

    def weights(self) -> Named:
        return self.state.models.parameters()

    def write_scores(self, seconds: float, values: Named, chance: Named, ceiling: Named) -> None:
        """The timing, and last the scores, which make the stack count as done."""
        timing = {"values": {"seconds": [seconds / len(self.group)] * len(self.group)}}
        write_json(self.folder / "timing.json", timing)
        parts = {"values": values, "chance": chance, "ceiling": ceiling}
        card = {part: {name: v.tolist() for name, v in named.items()} for part, named in parts.items()}
        write_json(self.folder / "scores.json", card)
