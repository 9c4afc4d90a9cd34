"""From the scores of members to the scores of settings: mean, interval, chance, ceiling, and paired differences."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbraid.config import Tree, task_of
from unbraid.files import read_json
from unbraid.line import stages
from unbraid.runs import Run
from unbraid.statistics import Difference, Estimate, estimate, paired_difference
from unbraid.sweeps.grid import Member, expand

COMPARED = (
    *("mmcs", "mcc", "recovered", "f1", "l0", "explained_variance", "dead"),
    *("absorption", "absorption_fraction", "redundancy", "correlation", "loss"),
    *("evenness", "hopkins", "clusters", "clustered"),
    *("accuracy", "steps_to_95", "support_best", "support_mass", "spread", "specialisation", "separation"),
    *("perplexity", "bits_per_character", "explosions", "sharpness", "row_std"),
    *("recovery", "few", "recovery_share", "probe", "factors_recovered", "features_match"),
    *("dci_disentanglement", "dci_completeness", "dci_informativeness", "mig", "sap", "modularity"),
    *("head_cosine", "head_cka", "importance_most", "idle", "quiet_drop", "usage_evenness", "seconds"),
)
OF_THE_MODEL = ("accuracy", "separation", "support_best", "specialisation", "parameters")
"""Scores of a model that stand beside those of what was learned from it."""
OF_ACTIVATIONS = (*OF_THE_MODEL, "probe")
"""What dictionaries that learned from one model have in common: it counts once, however many they are."""
PARTS = ("values", "chance", "ceiling")
BESIDE = ("model.json", "larger.json", "timing.json")
"""Scores of a stack that are not in its scores.json: its model's, those beside other stacks, what no seed decides."""


@dataclass
class _Setting:
    setting: Tree
    task: Tree = field(default_factory=dict)
    """What settings that are compared have in common: of models their task."""
    models: dict[str, str] = field(default_factory=dict)
    """Of a line, which model each replicate learned from."""
    members: list[Tree] = field(default_factory=list)
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    """Each metric's value by replicate; NaN where it has none."""
    chance: dict[str, list[float | None]] = field(default_factory=dict)
    ceiling: dict[str, list[float | None]] = field(default_factory=dict)


def summarise(run: Run) -> Tree:
    """What `scores.json` holds: settings in the order they were swept, and each one's difference from the first.

    Of models it is the first of the same task: accuracies on different tasks are not to be compared. Of a line with
    cases it is the first case that is alike in all else, as in the dictionary's size; and what no setting changes is
    not compared, but for accuracy, of which one must know that it is equal.
    """
    members = expand(run.config(), str(run.path))
    swept = {json.dumps(one.setting): _alike(one) for one in members}
    found = _collect(run, swept)
    for one in members if members[0].experiment.is_line else ():
        name = stages.model_folder(Path(), one.experiment.tree()).name
        found[json.dumps(one.setting)].models[one.replicate()] = name
    settings = [found[key] for key in swept if key in found]
    differences = [_compare(i, metric, settings) for i, metric in _comparable(settings)]
    if members[0].experiment.is_line:
        changed = {one["metric"] for one in differences if one["value"] != 0 or one["interval"] != (0, 0)}
        differences = [one for one in differences if one["metric"] in {*changed, "accuracy"}]
    return {"settings": [_describe(setting) for setting in settings], "differences": differences}


def _alike(member: Member) -> Tree:
    """What of a setting those that it is compared with must have too."""
    if member.experiment.is_line and "case" in member.setting:
        return {path: value for path, value in member.setting.items() if path != "case"}
    stories = member.experiment.is_taught or member.experiment.is_line
    return task_of(member.setting) if stories else {}


def _comparable(settings: list[_Setting]) -> Iterator[tuple[int, str]]:
    """The settings after the first, and the metrics each shares with it."""
    for index, setting in enumerate(settings):
        if (reference := _reference(index, settings)) != index:
            shared = settings[reference].values.keys() & setting.values.keys()
            yield from ((index, metric) for metric in COMPARED if metric in shared)


def _reference(index: int, settings: list[_Setting]) -> int:
    """What a setting is compared with."""
    tasks = [setting.task for setting in settings]
    return tasks.index(tasks[index])


def label(setting: Tree) -> str:
    """A setting in a few words: its case, and the last names of the paths that were swept."""
    plain = ("case", "world.task")
    words = [
        _word(value) if path in plain else f"{path.split('.')[-1]} {_word(value)}" for path, value in setting.items()
    ]
    return ", ".join(words) or "the one setting"


def _word(value: Any) -> str:
    if isinstance(value, dict) and "kind" not in value:
        return " ".join(f"{name} {_word(part)}" for name, part in value.items())
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _collect(run: Run, tasks: dict[str, Tree]) -> dict[str, _Setting]:
    found: dict[str, _Setting] = {}
    for index, folder in enumerate(run.stacks()):
        scores = _all_scores(folder)
        for position, member in enumerate(read_json(folder / "members.json")):
            key = json.dumps(member["setting"])
            one = found.setdefault(key, _Setting(member["setting"], tasks.get(key, {})))
            one.members.append(
                {"stack": index, "member": position, "seed": member["seed"], "replicate": member["replicate"]}
            )
            for metric, values in scores["values"].items():
                one.values.setdefault(metric, {})[member["replicate"]] = _number(values[position])
                for kept, source in ((one.chance, scores["chance"]), (one.ceiling, scores["ceiling"])):
                    if (bound := source.get(metric)) is not None:
                        kept.setdefault(metric, []).append(bound[position] if isinstance(bound, list) else bound)
    return found


def _all_scores(folder: Path) -> Tree:
    """A stack's own scores, and those that were written beside them."""
    found = [read_json(path) for name in ("scores.json", *BESIDE) if (path := folder / name).is_file()]
    return {part: dict(kv for card in found for kv in card.get(part, {}).items()) for part in PARTS}


def _describe(setting: _Setting) -> Tree:
    metrics: Tree = {}
    for metric, by_replicate in setting.values.items():
        if all(math.isnan(value) for value in by_replicate.values()):
            continue
        apart = by_model(by_replicate, setting.models) if metric in OF_ACTIVATIONS else by_replicate
        mean = estimate(list(apart.values()))
        metrics[metric] = {
            "value": mean.value,
            "interval": mean.interval,
            "chance": _mean(setting.chance.get(metric)),
            "ceiling": _mean(setting.ceiling.get(metric)),
            "members": list(by_replicate.values()),
        }
    return {"label": label(setting.setting), "setting": setting.setting, "members": setting.members, "metrics": metrics}


def _compare(index: int, metric: str, settings: list[_Setting]) -> Tree:
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
    if ours.models == theirs.models and metric in OF_ACTIVATIONS and ours.models:
        return Difference(Estimate(0.0, (0.0, 0.0)), len(set(ours.models.values())))
    if ours.models != theirs.models:
        values = by_model(values[0], ours.models), by_model(values[1], theirs.models)
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
