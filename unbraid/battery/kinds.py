"""What every kind of experiment promises: a small run of it in a folder of its own.

Its example's settings are a configuration; without any, all is at its defaults, which may take long.
"""

import json
import shutil
import tempfile
import tomllib
import weakref
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from unbraid.battery.promise import Example, Promise
from unbraid.config import to_toml
from unbraid.figures import draw
from unbraid.pipeline.expand import Plan, expand
from unbraid.pipeline.run import carry_out
from unbraid.progress import Silent
from unbraid.results import RunResults
from unbraid.signals import StopSignals
from unbraid.storage.runs import Run


@dataclass(frozen=True)
class KindCase:
    """A kind by its name in the registry, and a configuration of it."""

    name: str
    example: Example

    @property
    def plan(self) -> Plan:
        return expand({"kind": self.name, **self.example.settings}, self.name)

    @cached_property
    def folder(self) -> Path:
        """That of its runs, gone with the case."""
        folder = Path(tempfile.mkdtemp(prefix="unbraid-kind-"))
        weakref.finalize(self, shutil.rmtree, folder, True)
        return folder

    @cached_property
    def run(self) -> Run:
        return self.carried_out(self.folder, "first")

    def carried_out(self, folder: Path, name: str) -> Run:
        plan = self.plan
        run = Run.create(folder, name, to_toml(plan.config), plan.facts())
        with StopSignals("the same command") as signals:
            carry_out(run, plan, Silent(), signals, lambda finished: finished.path)
        return run


def kind_cases(name: str, example: Example) -> dict[str, KindCase]:
    return {name: KindCase(name, example)}


def survives_toml(case: KindCase) -> None:
    plan = case.plan
    again = expand(tomllib.loads(to_toml(plan.config)), case.name)
    assert [member.experiment for member in again.members] == [member.experiment for member in plan.members]


def leads_with_a_score(case: KindCase) -> None:
    settings = case.run.scores()["settings"]
    assert settings, "its run has no scores"
    for setting in settings:
        assert case.plan.first.leading in setting["metrics"], f"it leads with '{case.plan.first.leading}', not scored"


def its_report_is_drawn(case: KindCase) -> None:
    assert draw(RunResults(case.run)), "no section of its report has anything to show"


def again_from_the_cache(case: KindCase) -> None:
    """A second run beside the first takes every stage from it, and says the same."""
    first, cache = case.run, case.run.cache
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    second = case.carried_out(case.folder, "second")
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()} == before, "it works again"
    assert second.scores() == first.scores()


def again_from_the_start(case: KindCase) -> None:
    """A run that begins from nothing ends with the same scores."""
    other = case.carried_out(case.folder / "elsewhere", "first")
    assert json.dumps(other.scores()) == json.dumps(case.run.scores()), "made again, it has other scores"


PROMISES: tuple[Promise[KindCase], ...] = (
    Promise("settings survive TOML", survives_toml),
    Promise("runs, and scores the metric that it leads with", leads_with_a_score),
    Promise("its report has something to show", its_report_is_drawn),
    Promise("a second run takes all from the cache", again_from_the_cache),
    Promise("made again, it ends with the same scores", again_from_the_start),
)
