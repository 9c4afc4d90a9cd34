"""What figures of the superposition study show (`studies/published/superposition.toml`), beside a run of the same."""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from unbraid.config import JsonDict, flatten, merge, read_toml
from unbraid.config.sweep import at_path
from unbraid.reports.run_results import RunResults, Setting

PUBLISHED = Path(__file__).parents[1] / "studies" / "published" / "superposition.toml"
COLUMNS = "mechanisms.sparsity.weight"
CLIPPED = 100


@dataclass(frozen=True)
class Published:
    """One panel of the source: what it calls it, and its values by metric, size and L1."""

    label: str
    values: dict[str, dict[tuple[int, float], float]]

    def value(self, metric: str, features: int, weight: float) -> float | None:
        for (row, column), value in self.values.get(metric, {}).items():
            if row == features and math.isclose(column, weight, rel_tol=1e-3):
                return value
        return None


def published(results: RunResults, setting: Setting, across: str) -> Published | None:
    """The panel of the generator this setting has; None where its world or loss is another."""
    source = _source()
    swept: JsonDict = {}
    for path, value in setting.swept.items():
        swept = merge(swept, at_path(path, value))
    ours = merge({key: value for key, value in results.config.items() if key != "sweep"}, swept)
    flat = flatten(ours)
    if across != COLUMNS or any(flat.get(path) != value for path, value in source["conditions"].items()):
        return None
    for panel in source["panels"]:
        if all(ours["world"].get("firing", {}).get(key) == value for key, value in panel["firing"].items()):
            return Published(panel["label"], _values(panel, source["columns"]))
    return None


def _values(panel: JsonDict, columns: list[float]) -> dict[str, dict[tuple[int, float], float]]:
    return {
        metric: {
            (int(row), column): float(value)
            for row, values in panel[metric].items()
            for column, value in zip(columns, values, strict=True)
            if not math.isnan(value)
        }
        for metric in ("mmcs", "reconstruction_error", "dead")
    }


@cache
def _source() -> JsonDict:
    return read_toml(PUBLISHED)
