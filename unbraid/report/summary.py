"""A run in a few words: what was run, as a table; the headline, as one sentence."""

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from unbraid.config import REPLICATE, REPLICATES, JsonDict, flatten
from unbraid.figures.words import describe, estimate, number, seconds
from unbraid.results import RunResults

FACTS = {
    "world": "world.kind, world.task, world.text, world.model, world.site",
    "size": "world.n_features planted features, world.dimensions dimensions",
    "model": "model.kind, model.layers layers, model.heads heads, model.d_model wide, model.training.steps steps",
    "activations": "activations.site, activations.stories stories",
    "target": "activations.target",
    "dictionary": "dictionary.d_sae features, dictionary.activation, training.steps steps",
    "baseline": "baseline.kind",
    "samples": "samples.n",
}
"""Rows of the table of what was run: settings by their path, with a unit; what a run does not have is left out."""
NO_TRUTH = "No truth was planted in these activations: no score is against one."


def flat_sweep(config: JsonDict) -> dict[str, list[Any]]:
    """The swept values by their dotted path, after the names of the cases."""
    cases = {"case": list(config["cases"])} if config.get("cases") else {}
    return {**cases, **flatten(config.get("sweep", {}))}


def sweep_size(config: JsonDict) -> tuple[int, int]:
    """How many settings, and how many replicates of each."""
    sweep = flat_sweep(config)
    replicates = math.prod(len(sweep[path]) for path in REPLICATES if path in sweep)
    return math.prod(len(values) for values in sweep.values()) // replicates, replicates


def what_was_run(results: RunResults) -> list[tuple[str, str]]:
    """The rows of the table of what was run."""
    config, (settings, replicates) = results.config, sweep_size(results.config)
    sweep = flat_sweep(config)
    swept = [f"{path} = {_either(map(_phrase, values))}" for path, values in sweep.items() if path not in REPLICATES]
    varied = [path for path, values in sweep.items() if path in REPLICATES and len(values) > 1]
    seeds = ["all seeds" if path == REPLICATE else path for path in varied]
    mechanisms = dict.fromkeys(name for each in results.configs.values() for name in each.get("mechanisms", {}))
    rows = [
        ("kind", results.kind),
        ("scale", str(config.get("scale") or "")),
        ("truth", NO_TRUTH if config.get("world", {}).get("kind") == "activations" else ""),
        ("settings", f"{settings}: {'; '.join(swept)}" if settings > 1 else "1"),
        ("replicates", f"{replicates} ({' × '.join(seeds)})" if seeds else str(replicates)),
        *((name, _filled(results, paths)) for name, paths in FACTS.items()),
        ("mechanisms", ", ".join(mechanisms) if len(mechanisms) > 1 else ""),
        ("time", seconds(results.run.status()["seconds"])),
    ]
    return [(name, words) for name, words in rows if words]


def _filled(results: RunResults, paths: str) -> str:
    """Those of these settings that the run has, each with all its values and its unit."""
    parts: list[str] = []
    for path, _, unit in (each.partition(" ") for each in paths.split(", ")):
        found = [_at(config, path) for config in results.configs.values()]
        if value := _either(_phrase(each) for each in found if each is not None):
            parts.append(f"{value} {unit.removesuffix('s') if value == '1' else unit}".strip())
    return ", ".join(parts)


def _at(config: JsonDict, path: str) -> Any:
    found: Any = config
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _either(words: Iterable[str]) -> str:
    """`0.05, 0.1 or 0.15`."""
    *rest, last = dict.fromkeys(words) or [""]
    return f"{', '.join(rest)} or {last}" if rest else last


def _phrase(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(_phrase(part) if key == "kind" else f"{key} {_phrase(part)}" for key, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def best_setting(results: RunResults) -> pd.Series | None:
    """The row of `summary` with the leading score of the best setting; None where no setting has one."""
    rows = results.of_metric(results.leading).set_index("setting")
    return None if rows.empty else rows.loc[results.ranked[0]]


def headline(results: RunResults) -> str:
    """The best setting and its leading score, with its interval, beside chance and ceiling."""
    metric, best = results.leading, best_setting(results)
    label = describe(metric).label
    if best is None:
        return f"No setting has a value of {label}."
    known = [f"{name} {number(metric, best[name])}" for name in ("chance", "ceiling") if not pd.isna(best[name])]
    subject = f"Best of {len(results.labels)} settings, {best['label']}: " if len(results.labels) > 1 else ""
    against = f" ({'; '.join(known)})" if known else ""
    return f"{subject}{label} {estimate(metric, best['value'], best['low'], best['high'])}{against}."


def details(results: RunResults) -> list[str]:
    """What the leading score means, and what to expect of a setting that was chosen by it."""
    record = describe(results.leading)
    meaning = [f"{record.label}: {record.sentence}."] if record.sentence else []
    chosen = ["This setting was chosen by the same score: expect slightly less on new replicates."]
    most = results.settings["replicates"].max() if len(results.settings) else 0
    once = ["Each setting was trained once, so there are no intervals: differences may be luck."] if most < 2 else []
    return [*meaning, *(chosen if len(results.labels) > 2 else []), *once]
