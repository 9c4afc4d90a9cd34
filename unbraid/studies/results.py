"""What a finished study says, as its claims ask for it: values by replicate, and chance."""

import math
from dataclasses import dataclass

from unbraid.config import Tree
from unbraid.errors import Refusal
from unbraid.runs import Run

Value = str | int | float
Where = dict[str, Value | tuple[Value, ...]]
"""Swept paths and their value, or any of several; and `ratio`, learned per true features, the same at every scale."""

ByReplicate = dict[str, float]


@dataclass(frozen=True)
class Results:
    """The settings of a run with their scores, also on a model, and the configuration they are settings of."""

    settings: list[Tree]
    config: Tree

    @classmethod
    def read(cls, run: Run) -> "Results":
        return cls(run.settings(), run.config())

    def values(self, metric: str, where: Where) -> ByReplicate:
        """The metric's mean over the settings chosen, for every replicate that all of them have."""
        found = [_by_replicate(card, metric) for card in self.chosen(where)]
        return means(found)

    def chance(self, metric: str, where: Where) -> float | None:
        return self._bound("chance", metric, where)

    def ceiling(self, metric: str, where: Where) -> float | None:
        return self._bound("ceiling", metric, where)

    def _bound(self, side: str, metric: str, where: Where) -> float | None:
        """The mean over the settings chosen; None where any has none."""
        found = [card["metrics"].get(metric, {}).get(side) for card in self.chosen(where)]
        return None if None in found else sum(found) / len(found)

    def chosen(self, where: Where) -> list[Tree]:
        cards = [card for card in self.settings if matches(card["setting"], self.config, where)]
        if not cards:
            known = [card["label"] for card in self.settings]
            raise Refusal(f"the study has no setting with {where}; it has: {'; '.join(known)}")
        return cards


def matches(setting: Tree, config: Tree, where: Where) -> bool:
    """Whether the swept values of a setting are those asked for."""
    offered = dict(setting)
    if "ratio" in where:
        offered["ratio"] = _ratio(setting, config)
    return all(path in offered and _same(offered[path], value) for path, value in where.items())


def _ratio(setting: Tree, config: Tree) -> float | None:
    learned = setting.get("dictionary.features", config.get("dictionary", {}).get("features"))
    true = setting.get("world.features", config.get("world", {}).get("features"))
    return learned / true if learned and true else None


def _same(offered: object, asked: Value | tuple[Value, ...]) -> bool:
    """Equal, or equal to one of several; a table that was swept whole is known by its kind, or its names and values."""
    if isinstance(asked, tuple):
        return any(_same(offered, one) for one in asked)
    if isinstance(offered, dict):
        named = " ".join(f"{name} {value}" for name, value in offered.items())
        return asked in (offered.get("kind"), " ".join(map(str, offered.values())), named)
    if isinstance(offered, float) and isinstance(asked, int | float):
        return math.isclose(offered, asked, rel_tol=1e-6)
    return offered == asked


def _by_replicate(card: Tree, metric: str) -> ByReplicate:
    if metric not in card["metrics"]:
        raise Refusal(f"the study did not measure '{metric}' of {card['label']}; it has: {', '.join(card['metrics'])}")
    replicates = [member["replicate"] for member in card["members"]]
    values = card["metrics"][metric]["members"]
    return {each: float(value) for each, value in zip(replicates, values, strict=True) if value is not None}


def means(found: list[ByReplicate]) -> ByReplicate:
    """The mean of several columns, for every replicate that all have."""
    shared = set.intersection(*(set(one) for one in found))
    return {key: sum(one[key] for one in found) / len(found) for key in sorted(shared)}
