"""A configuration with `[cases]` and a `[sweep]` becomes one member per combination.

[cases.gated]      a named part of a configuration, merged over the rest; the cases are compared with each other
[tasks.counting]   what a task of the stories needs, merged over every case where `world.task` is that one
[sweep]            dotted paths to lists of values, each merged over the case and the task's part
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from unbraid.config import MERGED, REPLICATES, Tree, check, combine, flatten, nearest
from unbraid.errors import Refusal
from unbraid.sweeps.experiment import Experiment
from unbraid.worlds.stories import TASKS, Stories

SWEPT = (
    *("seed", "world", "dictionary", "training", "mechanisms", "baseline", "embedding", "data"),
    *("model", "constraints", "teaching", "capture"),
)


@dataclass(frozen=True)
class Member:
    """One combination of the sweep: its experiment, and what the sweep set other than seeds."""

    experiment: Experiment
    setting: dict[str, Any]

    def card(self) -> Tree:
        """As `members.json` holds it."""
        return {"setting": self.setting, "seed": self.experiment.seed, "replicate": self.replicate()}

    def replicate(self) -> str:
        """Which replicate of its setting this is; settings are compared where this agrees."""
        world_seed, capture = self.experiment.world.tree().get("seed", 0), self.experiment.capture
        model_seed = "" if capture is None else f"{capture.seed}/"
        return f"{world_seed}/{model_seed}{self.experiment.seed}"


def resolve(data: Tree, source: str) -> Tree:
    """The configuration with every default written out, and at swept paths the first value; refuses a bad member."""
    members = expand(data, source)
    kept = {key: data[key] for key in MERGED if data.get(key)}
    if {"cases", "tasks"} & kept.keys():  # these are merged over the rest, so the rest must not have them in already
        rest = {key: value for key, value in data.items() if key not in ("cases", "tasks")}
        members = expand(rest, f"{source} without its cases and tasks")
    return {**members[0].experiment.tree(), **kept}


def refuse_swept(overrides: Tree, data: Tree, source: str) -> None:
    """An override of a path that the sweep or every case sets would do nothing: say so."""
    swept = flatten(data.get("sweep", {})) if isinstance(data.get("sweep", {}), dict) else {}
    cases = _checked_parts(data, "cases", source)
    paths = {name: flatten(case) for name, case in cases.items()}
    for path, value in flatten({key: tree for key, tree in overrides.items() if key not in MERGED}).items():
        if _set_by(path, swept):
            asked = f"sweep.'{path}'=[{value}]"
            raise Refusal(f"{source}: '{path}' is swept, so setting it changes nothing; accepted: {asked}")
        if cases and all(_set_by(path, case) for case in paths.values()):
            asked = f"cases.{next(iter(cases))}.{path}={value}"
            raise Refusal(f"{source}: every case sets '{path}', so setting it changes nothing; accepted: {asked}")


def _set_by(path: str, others: Iterable[str]) -> bool:
    return any(path == other or path.startswith(f"{other}.") for other in others)


def expand(data: Tree, source: str) -> list[Member]:
    """Every member, in the order cases and sweep list their values; the last path varies fastest."""
    members: list[Member] = []
    for chosen, tree in combinations(data, source):
        where = f"{source} [sweep] {json.dumps(chosen)}" if chosen else source
        setting = {path: value for path, value in chosen.items() if path not in REPLICATES}
        members.append(Member(check(Experiment, tree, where), setting))
    if len({member.experiment.is_line for member in members}) > 1:
        raise Refusal(f"{source}: some cases have capture and others none; accepted: all of them, or none")
    if data.get("tasks") and not any(isinstance(member.experiment.world, Stories) for member in members):
        kind = members[0].experiment.world.tree()["kind"]
        raise Refusal(
            f"{source}: tasks were given, and a world of kind '{kind}' has none; accepted: world.kind = 'stories'"
        )
    return members


def combinations(data: Tree, source: str) -> Iterator[tuple[Tree, Tree]]:
    """What cases and sweep set, and the configuration with that put in, as it was written."""
    for kind in ("cases", "tasks"):
        _checked_parts(data, kind, source)
    _checked_sweep(data.get("sweep", {}), source)
    yield from combine(data)


def _checked_parts(data: Tree, kind: str, source: str) -> dict[str, Tree]:
    """The cases, or what the tasks need."""
    parts = data.get(kind, {})
    if not isinstance(parts, dict) or not all(isinstance(part, dict) for part in parts.values()):
        raise Refusal(f"{source}: {kind} is {parts!r:.60}; accepted: tables, each named as in [{kind}.NAME]")
    for name, part in parts.items():
        if kind == "tasks" and name not in TASKS:
            raise Refusal(f"{source}: tasks.{name} is for a task that is not there; {nearest(name, TASKS)}")
        if kind == "tasks" and "task" in (world if isinstance(world := part.get("world"), dict) else {}):
            raise Refusal(f"{source}: tasks.{name}.world.task would be another task than {name}; accepted: without it")
        for key in part:
            if key not in SWEPT:
                raise Refusal(f"{source}: {kind}.{name}.{key} cannot differ between {kind}; {nearest(key, SWEPT)}")
    return parts


def _checked_sweep(sweep: object, source: str) -> dict[str, list[Any]]:
    if not isinstance(sweep, dict):
        raise Refusal(f"{source}: sweep is {sweep!r:.60}; accepted: a table of dotted paths to lists")
    flat = flatten(sweep)
    for path, values in flat.items():
        if path.split(".")[0] not in SWEPT:
            raise Refusal(f'{source}: sweep."{path}" cannot be swept; {nearest(path.split(".")[0], SWEPT)}')
        if not isinstance(values, list) or not values:
            raise Refusal(f'{source}: sweep."{path}" is {values!r:.60}; accepted: a list of at least one value')
        if len({json.dumps(value, default=str) for value in values}) < len(values):
            raise Refusal(f'{source}: sweep."{path}" names a value twice: {values!r:.60}; accepted: each value once')
    return flat
