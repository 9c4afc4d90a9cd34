"""From what a user asked for to the members of a run: overrides put in, the sweep expanded once, defaults filled in."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbraid.config import JsonDict, check, suggest
from unbraid.config.plugins import check_loaded, used_by
from unbraid.config.sweep import MERGED, REPLICATES, combinations
from unbraid.errors import UserError
from unbraid.pipeline.experiment import Experiment, Member, MemberStack, check_memory, stacks_of
from unbraid.pipeline.kinds import DEFAULT_KIND, KINDS
from unbraid.storage.runs import Run
from unbraid.worlds.activations import folder_of, source_of
from unbraid.worlds.stories import TASKS


@dataclass(frozen=True)
class Plan:
    """A configuration, expanded: its members, and the stacks that they form."""

    config: JsonDict
    """With every default written out."""
    members: tuple[Member, ...]
    stacks: tuple[MemberStack, ...]

    @property
    def first(self) -> Experiment:
        return self.members[0].experiment

    def facts(self) -> JsonDict:
        """What a run directory keeps of its kind, so that whoever reads it need not know kinds."""
        first = self.first
        facts = {"kind": first.to_dict()["kind"], "leading": first.leading, "sections": list(first.sections)}
        experiments = [member.experiment for member in self.members]
        metrics = dict(item for experiment in experiments for item in experiment.metric_facts().items())
        plugins = [plugin.card() for plugin in used_by(*experiments)]
        return facts | ({"metrics": metrics} if metrics else {}) | ({"plugins": plugins} if plugins else {})


def expand(data: JsonDict, source: str, capture: Callable[[Any, Path], None] | None = None) -> Plan:
    """Every member, in the order cases and sweep list their values; the last path varies fastest.

    A world of activations that says what they are made of need not have them yet: `capture` makes them.
    """
    kind = kind_of(data, source)
    _check_tables(data, kind, source)
    combined = written_members(data, source)
    if capture is not None:
        _capture_missing(kind, combined, source, capture)
    members: list[Member] = []
    for chosen, tree in combined:
        where = f"{source} [sweep] {json.dumps(chosen)}" if chosen else source
        setting = {path: value for path, value in chosen.items() if path not in REPLICATES}
        members.append(Member(check(kind, tree, where), setting))
    if data.get("tasks") and "task" not in members[0].experiment.to_dict()["world"]:
        world = members[0].experiment.to_dict()["world"]["kind"]
        raise UserError(
            f"{source}: tasks were given, and a world of kind '{world}' has none; accepted: world.kind = 'stories'"
        )
    check_memory(members)
    return Plan(_resolved(data, kind, members[0], source), tuple(members), tuple(stacks_of(members)))


def plan_of(run: Run, command: str = "") -> Plan:
    """What a run directory was begun with, expanded; refused where that takes plugins which are not loaded.

    `command` is what would load them; by default that which resumes the run.
    """
    check_loaded(run.facts().get("plugins"), str(run.path), command or f"`{run.resume_command} --plugin FILE`")
    return expand(run.config(), str(run.path / "config.toml"))


def written_members(data: JsonDict, source: str) -> list[tuple[JsonDict, JsonDict]]:
    """What cases and sweep set, and the configuration with that put in, as it was written."""
    kind = kind_of(data, source)
    return combinations(data, source, kind.swept, TASKS, kind.renamed)


def kind_of(data: JsonDict, source: str) -> type[Experiment]:
    """The kind of experiment that a configuration says it is."""
    name = data.get("kind", DEFAULT_KIND)
    if (kind := KINDS.find(name)) is None:
        raise UserError(f"{source}: kind is {name!r:.60}; {suggest(str(name), KINDS)}")
    return kind


def _check_tables(data: JsonDict, kind: type[Experiment], source: str) -> None:
    """A setting that only other kinds of experiment have is answered with those kinds."""
    for key in data if not kind.renamed.keys() & data.keys() else ():
        others = [f"'{name}'" for name, other in KINDS.items() if key in other.model_fields]
        if key not in kind.model_fields and others:
            this = data.get("kind", DEFAULT_KIND)
            raise UserError(
                f"{source}: {key} was given, and an experiment of kind '{this}' has none; accepted: kind = "
                f"{' or '.join(others)}, or without {key}"
            )


def _resolved(data: JsonDict, kind: type[Experiment], first: Member, source: str) -> JsonDict:
    """The configuration with every default written out, and at swept paths the first value."""
    kept = {key: data[key] for key in MERGED if data.get(key)}
    if not {"cases", "tasks"} & kept.keys():
        return {**first.experiment.to_dict(), **kept}
    # Cases and tasks are merged over the rest, so the rest must not have them in already.
    rest = {key: value for key, value in data.items() if key not in ("cases", "tasks")}
    _, base = written_members(rest, source)[0]
    return {**check(kind, base, f"{source} without its cases and tasks").to_dict(), **kept}


def _capture_missing(
    kind: type[Experiment],
    combined: Sequence[tuple[JsonDict, JsonDict]],
    source: str,
    capture: Callable[[Any, Path], None],
) -> None:
    """Capture the activations that the worlds of a configuration are made of, where they are not there yet."""
    worlds = {json.dumps(tree.get("world"), default=str): tree.get("world") for _, tree in combined}
    captured = [world for world in worlds.values() if isinstance(world, dict) and world.get("kind") == "activations"]
    wanted = [(made_of, world) for world in captured if (made_of := source_of(world))]
    for _, tree in combined if wanted else ():
        kind.check_without_world(tree, source)  # before anybody waits for activations
    for made_of, world in wanted:
        capture(made_of, folder_of(world, made_of))
