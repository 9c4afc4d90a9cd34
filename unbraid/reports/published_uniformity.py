"""What the gauge study and its author report of heads (`studies/published/gauge.toml`), for a run of the same."""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from unbraid.config import JsonDict, flatten, read_toml
from unbraid.reports.configurations import setting_configs
from unbraid.reports.run_results import RunResults, Setting

PUBLISHED = Path(__file__).parents[1] / "studies" / "published" / "gauge.toml"
VARIED = {"temperature": "model.kappa", "alignment": "model.alignment"}
"""The setting that each of its tables varies."""
COMPARABLE = (
    "single runs on byte pairs of another vocabulary (GPT-2's): perplexities are not to be compared with those above, "
    "nor is a row_std at another length"
)


@dataclass(frozen=True)
class Report:
    """One row of a table of theirs, with the name it has in the report."""

    label: str
    values: dict[str, float]
    heads: int
    """That they count sharp ones of."""


def reported(results: RunResults) -> list[Report]:
    """Their rows that some setting of the run is like, of what the run varies; none where it varies another thing."""
    source = _source()
    configs = {json.dumps(swept): flatten(tree) for swept, tree in setting_configs(results.config)}
    ours = [(configs.get(json.dumps(one.swept), {}), one) for one in results.settings]
    found: list[Report] = []
    for table, path in VARIED.items():
        alike = [flat for flat, one in ours if _is_alike(results, flat, one)]
        if len({flat.get(path) for flat in alike}) < 2:
            continue
        for row in source[table]:
            if any(math.isclose(flat.get(path, math.nan), row[path]) for flat in alike):
                values = {name: value for name, value in row.items() if name not in (path, "label")}
                found.append(Report(row["label"], values, source["heads"]))
    return found


def _is_alike(results: RunResults, flat: JsonDict, setting: Setting) -> bool:
    """Whether it has the study's temperature rule and width."""
    source, stack = _source(), setting.places[0][0]
    labels = results.texts[stack].get("heads", []) if results.texts else []
    degrees = [int(label[1:]) for label in labels if label[1:].isdigit()]
    wide = len(degrees) == len(labels) and sum(2 * degree + 1 for degree in degrees) == source["width"]
    return wide and all(flat.get(path) == value for path, value in source["conditions"].items())


@cache
def _source() -> JsonDict:
    return read_toml(PUBLISHED)
