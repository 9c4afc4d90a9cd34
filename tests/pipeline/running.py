"""Runs of a configuration in a test: made in a folder, carried out without a report, stopped at a step and resumed."""

import tomllib
from pathlib import Path

from unbraid.config import JsonDict, to_toml
from unbraid.pipeline.expand import expand
from unbraid.pipeline.run import carry_out
from unbraid.progress import Progress, Silent, Task
from unbraid.signals import StopSignals
from unbraid.storage.runs import Run


class Killed(Exception):
    """What a test raises where a process would be killed."""


class Dying(Silent):
    """Ends the run at a step of the stage of this name, as a kill between two steps would."""

    def __init__(self, name: str, step: int) -> None:
        super().__init__()
        self.name, self.step = name, step

    def advance(self, index: int, step: int) -> None:
        super().advance(index, step)
        if (self._tasks[index].name, step) == (self.name, self.step):
            raise Killed


class Recorded(Silent):
    """Remembers the tasks that were planned and the sentences that were said."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[Task] = []
        self.said: list[str] = []

    def plan(self, tasks, workers: int = 1) -> None:
        super().plan(tasks, workers)
        self.planned += tasks

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    @property
    def kinds(self) -> list[str]:
        """The kind of every stage that was made, in order."""
        return [task.kind for task in self.planned]


def create(parent: Path, name: str, config: JsonDict | str) -> Run:
    """A run directory of a configuration, given as TOML or as a dictionary, of which nothing is done yet."""
    plan = expand(tomllib.loads(config) if isinstance(config, str) else config, name)
    parent.mkdir(exist_ok=True)
    return Run.create(parent, name, to_toml(plan.config), plan.facts())


def finish(run: Run, progress: Progress | None = None) -> Run:
    """Carry out what is left of a run, as `unbraid run` and `unbraid resume` do, but for its report."""
    with StopSignals(run.resume_command) as signals:
        carry_out(run, None, progress or Silent(), signals, lambda finished: finished.path / "report.html")
    return run


def run_config(parent: Path, name: str, config: JsonDict | str, progress: Progress | None = None) -> Run:
    return finish(create(parent, name, config), progress)


def results(run: Run, *names: str) -> dict[str, bytes]:
    """The bytes of these files of every stack."""
    return {f"{folder.name}/{name}": (folder / name).read_bytes() for folder in run.stacks() for name in names}
