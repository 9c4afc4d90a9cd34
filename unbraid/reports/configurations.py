"""Read from a run's configuration what was swept and compared."""

import math
from typing import Any

from unbraid.config import REPLICATES, JsonDict, combine, flatten, merge


def flat_sweep(config: JsonDict) -> dict[str, list[Any]]:
    """The swept values by their dotted path, after the names of the cases."""
    cases = {"case": list(config["cases"])} if config.get("cases") else {}
    return {**cases, **flatten(config.get("sweep", {}))}


def case_configs(config: JsonDict) -> list[JsonDict]:
    """The configuration of every case; the one there is, where there are no cases."""
    return [merge(config, case) for case in config.get("cases", {}).values()] or [config]


def setting_configs(config: JsonDict) -> list[tuple[JsonDict, JsonDict]]:
    """What was swept of every setting, and its configuration: its case's, with what its task needs."""
    sweep = {path: values for path, values in flatten(config.get("sweep", {})).items() if path not in REPLICATES}
    return list(combine({**config, "sweep": sweep}))


def sweep_size(config: JsonDict) -> tuple[int, int]:
    """How many settings, and how many replicates of each."""
    sweep = flat_sweep(config)
    replicates = math.prod(len(sweep[path]) for path in REPLICATES if path in sweep)
    return math.prod(len(values) for values in sweep.values()) // replicates, replicates
