"""A configuration with a `[sweep]` table of dotted paths to lists becomes one member per combination."""

import itertools
import json
from dataclasses import dataclass
from typing import Any

from unbraid.config import REPLICATES, Tree, at_path, check, flatten, merge, nearest
from unbraid.errors import Refusal
from unbraid.sweeps.experiment import Experiment

SWEPT = ("seed", "world", "dictionary", "training", "mechanisms", "baseline", "embedding", "data")


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
        world_seed = self.experiment.world.tree().get("seed", 0)
        return f"{world_seed}/{self.experiment.seed}"


def resolve(data: Tree, source: str) -> Tree:
    """The configuration with every default written out, and at swept paths the first value; refuses a bad member."""
    first = expand(data, source)[0].experiment.tree()
    return {**first, "sweep": data["sweep"]} if data.get("sweep") else first


def refuse_swept(overrides: Tree, data: Tree, source: str) -> None:
    """An override of a path that the sweep sets would do nothing: say so."""
    swept = flatten(data.get("sweep", {})) if isinstance(data.get("sweep", {}), dict) else {}
    for path, value in flatten({key: tree for key, tree in overrides.items() if key != "sweep"}).items():
        if any(path == other or path.startswith(f"{other}.") for other in swept):
            asked = f"sweep.'{path}'=[{value}]"
            raise Refusal(f"{source}: '{path}' is swept, so setting it changes nothing; accepted: {asked}")


def expand(data: Tree, source: str) -> list[Member]:
    """Every member, in the order the sweep lists its values; the last path varies fastest."""
    base = {key: value for key, value in data.items() if key != "sweep"}
    sweep = _checked_sweep(data.get("sweep", {}), source)
    members: list[Member] = []
    for values in itertools.product(*sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        tree = base
        for path, value in chosen.items():
            tree = merge(tree, at_path(path, value))
        where = f"{source} [sweep] {json.dumps(chosen)}" if chosen else source
        setting = {path: value for path, value in chosen.items() if path not in REPLICATES}
        members.append(Member(check(Experiment, tree, where), setting))
    return members


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
