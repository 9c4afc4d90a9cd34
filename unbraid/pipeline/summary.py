"""From the scores of members to the scores of settings: mean, interval, chance, ceiling, and paired differences."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unbraid.config import JsonDict
from unbraid.config.sweep import label
from unbraid.metrics.catalog import METRICS, learn, parts
from unbraid.metrics.intervals import Difference, Estimate, estimate, paired_difference
from unbraid.pipeline.experiment import Member
from unbraid.storage.files import read_json
from unbraid.storage.runs import Run

OF_ACTIVATIONS = tuple(name for name, metric in METRICS.items() if metric.scope != "own")
"""What dictionaries that learned from one model have in common (families by their record's name): it counts once."""
PARTS = ("values", "chance", "ceiling")
BESIDE = ("training.json", "causal.json", "replacement.json", "model.json", "larger.json")
"""Scores of a stack that are not in its scores.json: those that only training knows, of editing the model that it
learned from, of that model itself, those beside other stacks."""


@dataclass
class _Setting:
    setting: JsonDict
    comparable: JsonDict = field(default_factory=dict)
    """What settings that are compared have in common: of models their task."""
    sources: dict[str, str] = field(default_factory=dict)
    """Which stage each replicate learned from, as a trained model; empty where there is none."""
    members: list[JsonDict] = field(default_factory=list)
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    """Each metric's value by replicate; NaN where it has none."""
    chance: dict[str, list[float | None]] = field(default_factory=dict)
    ceiling: dict[str, list[float | None]] = field(default_factory=dict)


def summarize(run: Run, members: Sequence[Member]) -> JsonDict:
    """What `scores.json` holds: settings in the order they were swept, and each one's difference from the first that
    it may be compared with.

    Of what learned from trained models, a score that no setting changes is not compared, but for accuracy, of which
    one must know that it is equal.
    """
    for name, facts in (item for member in members for item in member.experiment.metric_facts().items()):
        learn(name, facts)
    order = {json.dumps(member.setting): member.experiment.comparable(member.setting) for member in members}
    collected = _collect(run, order)
    for member in members:
        if (source := member.experiment.source_key()) is not None:
            collected[json.dumps(member.setting)].sources[member.experiment.replicate()] = source
    settings = [collected[key] for key in order if key in collected]
    differences = [_compare(index, metric, settings) for index, metric in _comparable(settings)]
    if settings[0].sources:
        changed = {entry["metric"] for entry in differences if entry["value"] != 0 or entry["interval"] != (0, 0)}
        differences = [entry for entry in differences if entry["metric"] in {*changed, "accuracy"}]
    return {"settings": [_describe(setting) for setting in settings], "differences": differences}


def _comparable(settings: list[_Setting]) -> Iterator[tuple[int, str]]:
    """The settings after the first, and the metrics each shares with it."""
    for index, setting in enumerate(settings):
        if (reference := _reference(index, settings)) != index:
            shared = settings[reference].values.keys() & setting.values.keys()
            yield from ((index, name) for name, metric in METRICS.items() if metric.compared and name in shared)


def _reference(index: int, settings: list[_Setting]) -> int:
    """What a setting is compared with."""
    comparable = [setting.comparable for setting in settings]
    return comparable.index(comparable[index])


def _collect(run: Run, comparable: dict[str, JsonDict]) -> dict[str, _Setting]:
    settings: dict[str, _Setting] = {}
    for index, folder in enumerate(run.stacks()):
        scores = _all_scores(folder)
        for position, member in enumerate(read_json(folder / "members.json")):
            key = json.dumps(member["setting"])
            setting = settings.setdefault(key, _Setting(member["setting"], comparable.get(key, {})))
            setting.members.append(
                {"stack": index, "member": position, "seed": member["seed"], "replicate": member["replicate"]}
            )
            for metric, values in scores["values"].items():
                setting.values.setdefault(metric, {})[member["replicate"]] = _number(values[position])
                for kept, source in ((setting.chance, scores["chance"]), (setting.ceiling, scores["ceiling"])):
                    if (bound := source.get(metric)) is not None:
                        kept.setdefault(metric, []).append(bound[position] if isinstance(bound, list) else bound)
    return settings


def _all_scores(folder: Path) -> JsonDict:
    """A stack's own scores, and those that were written beside them."""
    found = [read_json(path) for name in ("scores.json", *BESIDE) if (path := folder / name).is_file()]
    return {part: dict(kv for card in found for kv in card.get(part, {}).items()) for part in PARTS}


def _describe(setting: _Setting) -> JsonDict:
    metrics: JsonDict = {}
    for metric, by_replicate in setting.values.items():
        if all(math.isnan(value) for value in by_replicate.values()):
            continue
        apart = by_model(by_replicate, setting.sources) if parts(metric)[0] in OF_ACTIVATIONS else by_replicate
        mean = estimate(list(apart.values()))
        metrics[metric] = {
            "value": mean.value,
            "interval": mean.interval,
            "chance": _mean(setting.chance.get(metric)),
            "ceiling": _mean(setting.ceiling.get(metric)),
            "members": list(by_replicate.values()),
        }
    return {"label": label(setting.setting), "setting": setting.setting, "members": setting.members, "metrics": metrics}


def _compare(index: int, metric: str, settings: list[_Setting]) -> JsonDict:
    reference = _reference(index, settings)
    difference = _difference(metric, settings[index], settings[reference])
    return {
        "setting": index,
        "reference": reference,
        "metric": metric,
        "value": difference.estimate.value,
        "interval": difference.estimate.interval,
        "pairs": difference.pairs,
        "verdict": difference.verdict,
    }


def _difference(metric: str, ours: _Setting, theirs: _Setting) -> Difference:
    """Paired by replicate; of a line by model where that differs, for dictionaries of one model are no replicates of
    it. What is of the model itself is the same for all that learned from it, for certain."""
    values = ours.values[metric], theirs.values[metric]
    if ours.sources == theirs.sources and parts(metric)[0] in OF_ACTIVATIONS and ours.sources:
        return Difference(Estimate(0.0, (0.0, 0.0)), len(set(ours.sources.values())))
    if ours.sources != theirs.sources:
        values = by_model(values[0], ours.sources), by_model(values[1], theirs.sources)
    return paired_difference(*values)


def by_model(values: dict[str, float], models: dict[str, str]) -> dict[str, float]:
    """Of a line the mean over the dictionaries of each model, by the seeds of world and model; else as they are."""
    if not models:
        return values
    groups: dict[str, list[float]] = {}
    for replicate, value in values.items():
        groups.setdefault(replicate.rpartition("/")[0], []).append(value)
    return {name: sum(each) / len(each) for name, each in groups.items()}


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _mean(values: list[float | None] | None) -> float | None:
    """Of the members that have one: where nothing fires, chance is not defined."""
    known = [value for value in values or [] if value is not None]
    return sum(known) / len(known) if known else None
