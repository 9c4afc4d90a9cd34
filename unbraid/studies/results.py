"""What a finished study says, as its claims ask for it: values by replicate, and chance."""

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.storage.runs import Run

Value = str | int | float
Where = dict[str, Value | Annotated[tuple[Value, ...], Field(strict=False)]]
"""A selection of settings: swept paths, each with its value or any of several.

`ratio` stands for learned per true features, the same at every scale.
"""

ByReplicate = dict[str, float]


@dataclass(frozen=True)
class Results:
    """The settings of a run with their scores, also on a model, and the configuration they are settings of."""

    settings: list[JsonDict]
    config: JsonDict

    @classmethod
    def read(cls, run: Run) -> "Results":
        return cls(run.settings(), run.config())

    def values(self, metric: str, where: Where) -> ByReplicate:
        """The metric's mean over the settings selected, for every replicate that all of them have."""
        return means([_by_replicate(summary, metric) for summary in self.select(where)])

    def chance(self, metric: str, where: Where) -> float | None:
        return self._bound("chance", metric, where)

    def ceiling(self, metric: str, where: Where) -> float | None:
        return self._bound("ceiling", metric, where)

    def _bound(self, side: str, metric: str, where: Where) -> float | None:
        """The mean over the settings selected; None where any has none."""
        bounds = [summary["metrics"].get(metric, {}).get(side) for summary in self.select(where)]
        return None if None in bounds else sum(bounds) / len(bounds)

    def select(self, where: Where) -> list[JsonDict]:
        """The summaries of the settings that match, at least one."""
        summaries = [summary for summary in self.settings if matches(summary["setting"], self.config, where)]
        if not summaries:
            labels = [summary["label"] for summary in self.settings]
            raise UserError(f"the study has no setting with {where}; it has: {'; '.join(labels)}")
        return summaries


def matches(setting: JsonDict, config: JsonDict, where: Where) -> bool:
    """Whether the swept values of a setting are those asked for."""
    offered = dict(setting)
    if "ratio" in where:
        offered["ratio"] = _ratio(setting, config)
    return all(path in offered and _same(offered[path], value) for path, value in where.items())


def _ratio(setting: JsonDict, config: JsonDict) -> float | None:
    learned = setting.get("dictionary.d_sae", config.get("dictionary", {}).get("d_sae"))
    true = setting.get("world.n_features", config.get("world", {}).get("n_features"))
    return learned / true if learned and true else None


def _same(offered: object, asked: Value | tuple[Value, ...]) -> bool:
    """Equal, or equal to one of several; a table that was swept whole is known by its kind, or its names and values."""
    if isinstance(asked, tuple):
        return any(_same(offered, value) for value in asked)
    if isinstance(offered, dict):
        named = " ".join(f"{name} {value}" for name, value in offered.items())
        return asked in (offered.get("kind"), " ".join(map(str, offered.values())), named)
    if isinstance(offered, float) and isinstance(asked, int | float):
        return math.isclose(offered, asked, rel_tol=1e-6)
    return offered == asked


def _by_replicate(summary: JsonDict, metric: str) -> ByReplicate:
    metrics = summary["metrics"]
    if metric not in metrics:
        raise UserError(f"the study did not measure '{metric}' of {summary['label']}; it has: {', '.join(metrics)}")
    replicates = [member["replicate"] for member in summary["members"]]
    values = zip(replicates, metrics[metric]["members"], strict=True)
    return {replicate: float(value) for replicate, value in values if value is not None}


def means(columns: list[ByReplicate]) -> ByReplicate:
    """The mean of several columns, for every replicate that all have."""
    shared = set.intersection(*(set(column) for column in columns))
    return {key: sum(column[key] for column in columns) / len(columns) for key in sorted(shared)}
