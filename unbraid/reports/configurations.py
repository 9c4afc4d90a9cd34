"""Read from a run's configuration what was swept and compared, and what kind of thing was trained."""

import math
from typing import Any

from unbraid.config import REPLICATES, Tree, combine, flatten, merge


def flat_sweep(config: Tree) -> dict[str, list[Any]]:
    """The swept values by their dotted path, after the names of the cases."""
    cases = {"case": list(config["cases"])} if config.get("cases") else {}
    return {**cases, **flatten(config.get("sweep", {}))}


def case_configs(config: Tree) -> list[Tree]:
    """The configuration of every case; the one there is, where there are no cases."""
    return [merge(config, case) for case in config.get("cases", {}).values()] or [config]


def setting_configs(config: Tree) -> list[tuple[Tree, Tree]]:
    """What was swept of every setting, and its configuration: its case's, with what its task needs."""
    sweep = {path: values for path, values in flatten(config.get("sweep", {})).items() if path not in REPLICATES}
    return list(combine({**config, "sweep": sweep}))


def is_taught(config: Tree) -> bool:
    """Whether models are, and nothing is learned from them."""
    return _are_stories(config) and not is_line(config)


def is_line(config: Tree) -> bool:
    return _are_stories(config) and all(case.get("capture") is not None for case in case_configs(config))


def _are_stories(config: Tree) -> bool:
    return all(case.get("world", {}).get("kind") == "stories" for case in case_configs(config))


def is_text(config: Tree) -> bool:
    return all(case.get("world", {}).get("kind") == "text" for case in case_configs(config))


def sweep_size(config: Tree) -> tuple[int, int]:
    """How many settings, and how many replicates of each."""
    sweep = flat_sweep(config)
    replicates = math.prod(len(sweep[path]) for path in REPLICATES if path in sweep)
    return math.prod(len(values) for values in sweep.values()) // replicates, replicates
