"""Teach and examine one stack of models on stories, with what is on disk taken as already done.

tables.safetensors   tables of layers and heads, and of the first member of each setting `pattern.POSITION`
stories.json         the stories those patterns are of, in words; the shortcuts of the world; the names of factors
"""

import torch

from unbraid.axes import Tensor
from unbraid.examining import Shown, examine, show
from unbraid.files import write_arrays, write_json
from unbraid.metrics.answering import steps_to
from unbraid.progress import Watcher
from unbraid.runs import Run, read_log
from unbraid.signals import StopSignals
from unbraid.sweeps.grid import Member
from unbraid.sweeps.taught_work import TaughtWork
from unbraid.sweeps.trained_work import arrays
from unbraid.worlds.stories import Stories

MOSTLY_RIGHT = 0.95


class ModelWork(TaughtWork):
    """What is left to do of one stack."""

    def __init__(self, run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals) -> None:
        super().__init__(run, index, group, watcher, signals)
        assert isinstance(self.asking, Stories), self.asking
        self.world = self.asking

    def score(self) -> None:
        seconds = self.seconds
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
        values = {"steps_to_95": self._steps_to_95(), **found.values}
        self.write_scores(seconds, values, found.chance, {"accuracy": torch.ones(len(self.group))})

    def _show(self, place: int) -> Shown:
        return show(self.state.models.member(place), self.world, self.examining.shown)

    def _steps_to_95(self) -> Tensor:
        """The first logged step whose batch was mostly answered right."""
        lines = read_log(self.folder / "log.jsonl")
        accuracies = torch.tensor([line["accuracy"] for line in lines]).T
        return steps_to(MOSTLY_RIGHT, accuracies, torch.tensor([line["step"] for line in lines]))
