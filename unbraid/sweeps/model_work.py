"""Teach and examine one stack of models, with what is on disk taken as already done.

tables.safetensors   tables of layers and heads, and of the first member of each setting `pattern.POSITION`
stories.json         the stories those patterns are of, in words; the shortcuts of the world; the names of factors
timing.json          seconds of teaching, which no seed decides
"""

from collections.abc import Iterator

import torch

from unbraid.axes import Tensor
from unbraid.config import Tree
from unbraid.examining import Shown, examine, show
from unbraid.files import write_arrays, write_json
from unbraid.members import across
from unbraid.metrics.answering import steps_to
from unbraid.progress import Watcher
from unbraid.runs import Run, read_log
from unbraid.signals import StopSignals
from unbraid.sweeps.grid import Member
from unbraid.sweeps.trained_work import TrainedWork, arrays
from unbraid.training.schedule import rate_factor
from unbraid.training.teaching import Lesson, Pupils, teach

MOSTLY_RIGHT = 0.95


class ModelWork(TrainedWork[Pupils, Lesson]):
    """What is left to do of one stack."""

    advice = "teaching.learning_rate, teaching.clip and the weights of constraints"

    def __init__(self, run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals) -> None:
        super().__init__(run, index, group, watcher, signals)
        first = group[0].experiment
        self.world, self.examining = first.stories, first.examining
        self.teaching = across([member.experiment.teaching for member in group])
        self.steps = self.teaching.steps
        per_member = [member.experiment.constraining() for member in group]
        self.constraints = {name: across([each[name] for each in per_member]) for name in per_member[0]}
        self.state = Pupils.start(first.model, self.world, [member.experiment.seed for member in group])

    def train(self) -> Iterator[Lesson]:
        return teach(self.state, self.world, self.teaching, self.constraints)

    def line(self, report: Lesson) -> Tree:
        return {
            "step": self.state.step,
            "rate_factor": rate_factor(self.state.step - 1, self.teaching),
            "terms": {name: cost.tolist() for name, cost in report.terms.items()},
            "accuracy": report.accuracy.tolist(),
        }

    def weights(self) -> dict[str, Tensor]:
        return self.state.models.parameters()

    def score(self) -> None:
        seconds = self.seconds / len(self.group)
        found = examine(self.state.models, self.world, self.examining)
        shown = {place: self._show(place) for place in self.first_of_settings() if self.examining.shown}
        patterns = {f"pattern.{place}": one.patterns for place, one in shown.items()}
        write_arrays(self.folder / "tables.safetensors", {**arrays(found.tables), **patterns})
        card = {
            "members": {str(place): one.stories for place, one in shown.items()},
            "shortcuts": found.shortcuts,
            "factors": list(self.world.factors),
        }
        write_json(self.folder / "stories.json", card)
        timing = {"values": {"seconds": [seconds] * len(self.group)}}
        write_json(self.folder / "timing.json", timing)
        values = {"steps_to_95": self._steps_to_95(), **found.values}
        parts = {"values": values, "chance": found.chance, "ceiling": {"accuracy": torch.ones(len(self.group))}}
        card = {part: {name: v.tolist() for name, v in named.items()} for part, named in parts.items()}
        write_json(self.folder / "scores.json", card)

    def _show(self, place: int) -> Shown:
        return show(self.state.models.member(place), self.world, self.examining.shown)

    def _steps_to_95(self) -> Tensor:
        """The first logged step whose batch was mostly answered right."""
        lines = read_log(self.folder / "log.jsonl")
        accuracies = torch.tensor([line["accuracy"] for line in lines]).T
        return steps_to(MOSTLY_RIGHT, accuracies, torch.tensor([line["step"] for line in lines]))
