"""One run: a kind of a test's own, the sweep expanded once, progress by name, and what is left on disk."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest

import unbraid
from tests.pipeline.running import Dying, Killed, Recorded, create, finish, run_config
from unbraid.config import JsonDict, read_toml, to_toml
from unbraid.config import sweep as sweeping
from unbraid.config.sweep import at_scale, overridden, scales_of
from unbraid.errors import UserError
from unbraid.pipeline import expand as expanding
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import Experiment, MemberStack
from unbraid.pipeline.kinds import KINDS
from unbraid.pipeline.run import carry_out, run_stages
from unbraid.pipeline.stage import Context, Stage
from unbraid.progress import Silent
from unbraid.signals import StopSignals
from unbraid.storage.files import read_json, write_json
from unbraid.storage.runs import Run
from unbraid.studies.shipped import shipped

DICTIONARIES: JsonDict = {
    "world": {"dimensions": 6, "n_features": 9, "active": 2.0},
    "dictionary": {"d_sae": 8},
    "training": {"steps": 4, "batch": 16},
    "evaluation": {"samples": 64},
    "cases": {"l1": {}, "top-k": {"dictionary": {"activation": {"kind": "topk", "k": 2}}}},
    "sweep": {"seed": [3]},
}


# A new kind is one file, as these thirty lines, and one line in the registry.


@dataclass(frozen=True)
class RollDice(Stage):
    """Throw dice: a stage of its own."""

    kind = "dice"

    sides: tuple[int, ...]
    seeds: tuple[int, ...]

    @property
    def config(self) -> JsonDict:
        return {"sides": list(self.sides), "seeds": list(self.seeds)}

    def run(self, context: Context) -> None:
        thrown = [1.0 + seed % sides for sides, seed in zip(self.sides, self.seeds, strict=True)]
        write_json(context.folder / "scores.json", {"values": {"mmcs": thrown}, "chance": {}, "ceiling": {}})


class DiceExperiment(Experiment):
    """Reads [sides] and nothing else."""

    swept: ClassVar[tuple[str, ...]] = ("seed", "sides")
    sections: ClassVar[tuple[str, ...]] = ("dice",)

    kind: Literal["dice"]
    sides: int = 6

    @property
    def leading(self) -> str:
        return "mmcs"

    def replicate(self) -> str:
        return str(self.seed)

    def shared(self) -> JsonDict:
        return {}

    def memory(self) -> int:
        return 1

    def stages(self, stack: MemberStack) -> tuple[Stage, ...]:
        dice = [member.experiment for member in stack.members]
        sides = tuple(experiment.sides for experiment in dice if isinstance(experiment, DiceExperiment))
        return (RollDice(f"{stack.name} · throwing", sides, tuple(experiment.seed for experiment in dice)),)


def test_a_new_kind_is_a_class_and_a_line_in_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(KINDS, "dice", DiceExperiment)
    plan = expand({"kind": "dice", "sweep": {"sides": [6, 20], "seed": [7, 8]}}, "here")
    run = Run.create(tmp_path, "dice", to_toml(plan.config), plan.facts())
    progress = Recorded()
    run_stages(run, plan, progress, StopSignals("resume"))
    assert [task.name for task in progress.planned] == ["2 settings from sides 6 · 2 seeds · throwing"]
    settings = run.scores()["settings"]
    assert [setting["label"] for setting in settings] == ["sides 6", "sides 20"]
    assert [setting["metrics"]["mmcs"]["members"] for setting in settings] == [[2.0, 3.0], [8.0, 9.0]]
    assert [entry["value"] for entry in run.scores()["differences"]] == [6.0]
    assert run.facts()["leading"] == "mmcs"
    again = Recorded()
    finish(run, again)
    assert again.planned == [], "a new kind has the cache"
    with pytest.raises(UserError, match=r"there is no setting 'side'; did you mean 'sides'\?"):
        expand({"kind": "dice", "side": 3}, "here")


def test_no_code_outside_the_kinds_asks_what_kind_an_experiment_is():
    """No class of a kind, and no flag of one, is named by any other file; reports read what a run says of itself."""
    folder = Path(unbraid.__file__).parent
    classes = {kind.__name__ for kind in KINDS.values()} | {"LearnsDictionaries", "TrainsModels"}
    flags = {"is_line", "is_taught", "is_trained", "is_text", "is_planted"}
    for path in folder.rglob("*.py"):
        if (folder / "pipeline" / "kinds") in path.parents:
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        assert not names & (classes | flags), path


@pytest.fixture
def expansions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many members each expansion of a sweep gave."""
    counts: list[int] = []
    combine = sweeping.combine

    def counted(data: JsonDict, tables: Sequence[str] = ()):
        members = list(combine(data, tables))
        counts.append(len(members))
        return iter(members)

    monkeypatch.setattr(sweeping, "combine", counted)
    return counts


def test_the_sweep_is_expanded_once_a_run(tmp_path: Path, expansions: list[int]):
    """By whoever makes the run directory; whoever carries the run out is given the plan."""
    config = {**DICTIONARIES, "cases": {}, "sweep": {"dictionary.d_sae": [4, 6], "seed": [0, 1]}}
    plan = expand(config, "here")
    run = Run.create(tmp_path, "run", to_toml(plan.config), plan.facts())
    with StopSignals(run.resume_command) as signals:
        carry_out(run, plan, Silent(), signals, lambda finished: finished.path / "report.html")
    assert expansions == [4]
    assert run.is_finished


def test_a_run_that_is_resumed_expands_its_sweep_once(tmp_path: Path, expansions: list[int]):
    run = create(tmp_path, "run", {**DICTIONARIES, "cases": {}, "sweep": {"seed": [0, 1]}})
    expansions.clear()
    finish(run)
    assert expansions == [2]
    finish(run)
    assert expansions == [2], "a finished run is verified and no more"


def test_cases_are_expanded_once_more_for_their_base_alone(tmp_path: Path, expansions: list[int]):
    """The resolved configuration holds the cases and what they are merged over, which is one member."""
    run_config(tmp_path, "run", DICTIONARIES)
    assert expansions == [2, 1] * 2, "to make the run directory, and to carry the run out"


def test_progress_names_the_case_and_the_stage(tmp_path: Path):
    recorded = Recorded()
    run_config(tmp_path, "run", DICTIONARIES, recorded)
    names = [task.name for task in recorded.planned]
    assert names == [
        "l1 · seed 0/3 · training",
        "l1 · seed 0/3 · evaluation",
        "top-k · seed 0/3 · training",
        "top-k · seed 0/3 · evaluation",
    ]


def test_a_line_of_progress_begins_with_them(tmp_path: Path):
    notes: list[str] = []

    class Noted(Silent):
        def note(self, words: str, last: bool = False) -> None:
            notes.append(words)

    run_config(tmp_path, "run", DICTIONARIES, Noted())
    assert [words.split("  ")[0] for words in notes] == [
        "l1 · seed 0/3 · training · step 4/4",
        "top-k · seed 0/3 · training · step 4/4",
    ]


def test_every_stage_is_measured_from_its_beginning(tmp_path: Path):
    """Also one of a single step, and one that goes on from a checkpoint: from there."""
    begun: list[tuple[str, int]] = []

    class Begun(Silent):
        def begin(self, index: int, step: int) -> None:
            super().begin(index, step)
            begun.append((self._tasks[index].name, step))

    run = create(tmp_path, "run", {**DICTIONARIES, "checkpoints": {"every": 2}})
    with pytest.raises(Killed):
        finish(run, Dying("top-k · seed 0/3 · training", 3))
    finish(run, Begun())
    training, evaluation = "top-k · seed 0/3 · training", "top-k · seed 0/3 · evaluation"
    assert begun == [(training, 0), (training, 2), (evaluation, 0)]


def test_a_run_says_how_it_is(tmp_path: Path):
    run = create(tmp_path, "run", DICTIONARIES)
    with pytest.raises(Killed):
        finish(run, Dying("l1 · seed 0/3 · training", 2))
    assert run.status()["state"] == "failed"
    finish(run)
    assert run.status()["state"] == "finished"
    assert Run.open(run.path).is_finished
    assert [member["setting"] for member in read_json(run.stack(1) / "members.json")] == [{"case": "top-k"}]
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]


TRAININGS = {
    "dictionaries": ["training"],
    "models": ["model.training"],
    "language_models": ["model.training"],
    "pipeline": ["model.training", "training"],
    "embedding": [],
}
"""The tables of each kind that say how long something is trained."""


@pytest.mark.parametrize("name", shipped())
def test_a_shorter_run_shortens_its_schedule(name: str, tmp_path: Path, monkeypatch, pretend_to_capture):
    """`training.steps=60` alone is accepted for everything that ships, at every scale: warm-up and decay are shares."""
    data = read_toml(shipped()[name])
    tables = [] if "baseline" in data else TRAININGS[data.get("kind", "dictionaries")]
    monkeypatch.chdir(tmp_path)
    for scale in scales_of(data, name) or [None]:
        scaled = at_scale(data, scale, name)
        pretend_to_capture(scaled)
        for table in tables:
            members = expand(overridden(scaled, [f"{table}.steps=60"], name), name).members
            trees = [member.experiment.to_dict() for member in members]
            steps = {at(tree, table)["steps"] for tree in trees if "baseline" not in tree}
            assert 60 in steps or "tasks" in data, "a case or a task may have steps of its own, not all of them"


def at(tree: JsonDict, path: str) -> JsonDict:
    for name in path.split("."):
        tree = tree[name]
    return tree


def test_every_kind_says_what_it_trains():
    assert TRAININGS.keys() == KINDS.keys()


def test_expansion_does_not_plant_the_truth(monkeypatch: pytest.MonkeyPatch):
    """A sweep over large worlds is expanded in a moment: their directions are made by whoever trains."""

    def planted(world) -> None:
        raise AssertionError("directions were planted")

    monkeypatch.setattr("unbraid.worlds.superposition.Superposition.directions", property(planted))
    plan = expanding.expand({"sweep": {"world.seed": list(range(5))}}, "here")
    assert plan.facts()["leading"] == "mmcs"
    assert len(plan.stacks) == 5
