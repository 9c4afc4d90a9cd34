"""Judge every dictionary of a run on a model, and say it setting by setting, with intervals and chance.

What `judged.json` holds: `settings` and `differences` as in scores.json, and with each score its `error`, the standard
error from the luck of the texts (the interval is over replicates: of one there is none); `beside`, what raw activations
and an ablation by the mean score; `probes`, data set by data set, and `letters`, letter by letter, of every dictionary
by setting/replicate; and `warnings`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from unbraid.capture.manifest import fingerprint
from unbraid.capture.models import Model, load
from unbraid.capture.shards import Shards
from unbraid.capture.sites import site
from unbraid.config import Tree
from unbraid.errors import Refusal
from unbraid.judging.judge import Judgement, Judging, judge
from unbraid.judging.lens import Lens
from unbraid.judging.splicing import Scores
from unbraid.metrics.probing import Accuracies
from unbraid.progress import Watcher
from unbraid.randomness import stream
from unbraid.runs import Run
from unbraid.statistics import estimate, paired_difference
from unbraid.sweeps.execute import load_stack
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import expand
from unbraid.sweeps.plan import plan
from unbraid.sweeps.summary import label
from unbraid.worlds.activations import Activations

FILE = "judged.json"
CHANCE_DRAWS = 3


@dataclass(frozen=True)
class _Judged:
    """A setting's dictionaries by replicate, where each is in the run, and random ones of their kind."""

    setting: Tree
    members: list[Tree] = field(default_factory=list)
    lenses: dict[str, Lens] = field(default_factory=dict)

    def random(self) -> list[Lens]:
        seeds = stream(0, "chance").integers(0, 1 << 32, CHANCE_DRAWS).tolist()
        return [lens.at_random(seed) for lens, seed in zip(self.lenses.values(), seeds, strict=False)]


def judge_run(
    run: Run, name: str, text: Path, labelled: Sequence[Path], asked: str | None, settings: Judging, watcher: Watcher
) -> Tree:
    """What `judged.json` holds; the site is the one the run was trained at, unless another is asked for."""
    judged, first = _settings(run)
    place = asked or _trained_site(first, run)
    model = load(name)
    _refuse_another_model(first, model, run)
    where = site(model, place)
    lenses = {f"{i}/{key}": lens for i, one in enumerate(judged) for key, lens in one.lenses.items()}
    chance = {f"{i}/chance {k}": lens for i, one in enumerate(judged) for k, lens in enumerate(one.random())}
    found = judge(model, where, {**lenses, **chance}, text, labelled, settings, watcher)
    return {
        "model": model.name,
        "site": place,
        "text": str(text),
        "labelled": [str(path) for path in labelled],
        "judging": settings.tree(),
        **_summary(judged, found),
        "beside": {"raw activations": _values(found.raw), "the mean": _values(found.mean)},
        "probes": {data: _nested(accuracies) for data, accuracies in found.probes.items()},
        "letters": {name: [asdict(one) for one in each] for name, each in found.letters.items()},
        "warnings": found.warnings,
    }


def _settings(run: Run) -> tuple[list[_Judged], Experiment]:
    if (state := run.status()["state"]) != "finished":
        raise Refusal(f"{run.path} is {state}; accepted: a finished run (`{run.how_to_go_on}`)")
    found: dict[str, _Judged] = {}
    first: Experiment | None = None
    for index, group in enumerate(plan(expand(run.config(), str(run.path)))):
        if not group[0].experiment.is_trained:
            continue
        first, stack = first or group[0].experiment, load_stack(run.path, index)
        for position, member in enumerate(group):
            one = found.setdefault(json.dumps(member.setting), _Judged(member.setting))
            one.members.append({"stack": index, "member": position, **_without_setting(member.card())})
            one.lenses[member.replicate()] = Lens(stack.member(position))
    if first is None:
        raise Refusal(f"{run.path} holds no trained dictionary; accepted: a run that trains some")
    return list(found.values()), first


def _without_setting(card: Tree) -> Tree:
    return {key: value for key, value in card.items() if key != "setting"}


def _trained_site(first: Experiment, run: Run) -> str:
    if isinstance(first.world, Activations):
        return first.world.site
    raise Refusal(f"{run.path} was not trained on a model's activations; accepted: --site and a model of its width")


def _refuse_another_model(first: Experiment, model: Model, run: Run) -> None:
    if not isinstance(first.world, Activations):
        return
    origin = Shards.open(first.world.path).manifest.origin
    if origin.weights != fingerprint(model.model.state_dict()):
        raise Refusal(f"{run.path} was trained on activations of {origin.model}, and {model.name} has other weights")


def _summary(judged: Sequence[_Judged], found: Judgement) -> Tree:
    values = [_columns(index, one, found.scores) for index, one in enumerate(judged)]
    cards = [
        {
            "label": label(one.setting),
            "setting": one.setting,
            "members": one.members,
            "metrics": {name: _metric(index, name, column, found.scores) for name, column in values[index].items()},
        }
        for index, one in enumerate(judged)
    ]
    differences = [
        _difference(index, name, values[index][name], values[0][name])
        for index in range(1, len(judged))
        for name in values[index]
        if name in values[0] and name not in ("ce_clean", "ce_zero", "ce_mean")
    ]
    return {"settings": cards, "differences": differences}


def _columns(index: int, one: _Judged, scores: Mapping[str, Scores]) -> dict[str, dict[str, float]]:
    """Each score by replicate."""
    own = {replicate: scores[f"{index}/{replicate}"] for replicate in one.lenses}
    names = dict.fromkeys(name for each in own.values() for name in each)
    return {name: {replicate: each[name][0] for replicate, each in own.items() if name in each} for name in names}


def _metric(index: int, name: str, column: Mapping[str, float], scores: Mapping[str, Scores]) -> Tree:
    mean = estimate(list(column.values()))
    by_chance = [each[name][0] for key, each in scores.items() if key.startswith(f"{index}/chance ") and name in each]
    errors = [scores[f"{index}/{replicate}"][name][1] for replicate in column]
    known = [error for error in errors if error is not None]
    return {
        "value": mean.value,
        "interval": mean.interval,
        "error": float(np.mean(known)) if known else None,
        "chance": float(np.mean(by_chance)) if by_chance and not name.startswith("ce_") else None,
        "ceiling": None,
        "members": list(column.values()),
    }


def _difference(index: int, name: str, ours: Mapping[str, float], reference: Mapping[str, float]) -> Tree:
    difference = paired_difference(ours, reference)
    mean = difference.estimate
    card = {"setting": index, "reference": 0, "metric": name, "value": mean.value, "interval": mean.interval}
    return {**card, "pairs": difference.pairs, "verdict": difference.verdict}


def _nested(accuracies: Mapping[str, Accuracies]) -> Tree:
    return {name: {k: asdict(accuracy) for k, accuracy in each.items()} for name, each in accuracies.items()}


def _values(scores: Scores) -> Tree:
    return {name: {"value": value, "error": error} for name, (value, error) in scores.items()}
