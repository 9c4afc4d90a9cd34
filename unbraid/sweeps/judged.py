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
from unbraid.capture.texts import documents
from unbraid.config import Tree
from unbraid.errors import Refusal
from unbraid.files import read_record
from unbraid.judging.judge import Judgement, judge
from unbraid.judging.labelled import read_labelled
from unbraid.judging.lens import Lens
from unbraid.judging.settings import Judging, refuse_absent
from unbraid.judging.splicing import Scores
from unbraid.metrics.probing import Accuracies
from unbraid.progress import Watcher
from unbraid.randomness import stream
from unbraid.runs import Run
from unbraid.statistics import estimate, paired_difference
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import expand
from unbraid.sweeps.plan import plan
from unbraid.sweeps.summary import label
from unbraid.sweeps.trained import load_stack
from unbraid.worlds import Activations, World

FILE = "judged.json"
CHANCE_DRAWS = 3


@dataclass(frozen=True)
class _Judged:
    """A setting's dictionaries by replicate, and where each is in the run."""

    setting: Tree
    members: list[Tree] = field(default_factory=list)
    lenses: dict[str, Lens] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[object, ...]:
        """Settings of one size and rule share random dictionaries, unless the rule has learned something."""
        first = next(iter(self.lenses.values()))
        own = first.stack
        return own.features, own.activation, own.pre_bias is None, id(first) if first.rule_learns else None

    def random(self) -> list[Lens]:
        seeds = stream(0, "chance").integers(0, 1 << 32, CHANCE_DRAWS).tolist()
        return [lens.at_random(seed) for lens, seed in zip(self.lenses.values(), seeds, strict=False)]


def judge_run(run: Run, settings: Judging, watcher: Watcher) -> Tree:
    """What `judged.json` holds; model and site are those the run was trained on, unless others are asked for."""
    judged, first = _settings(run)
    place = settings.site or _trained_on(first, run).site
    model = load(settings.model or _trained_on(first, run).model)
    if isinstance(first.world, Activations):
        _refuse_another_model(first.world, model)
    where = site(model, place)
    alike = _first_alike(judged)
    lenses = {f"{i}/{key}": lens for i, one in enumerate(judged) for key, lens in one.lenses.items()}
    chance = {f"{i}/chance {k}": lens for i in sorted(set(alike)) for k, lens in enumerate(judged[i].random())}
    found = judge(model, where, {**lenses, **chance}, settings, watcher)
    return {
        "model": model.name,
        "site": place,
        "text": settings.text,
        "labelled": list(settings.labels),
        "judging": settings.tree(),
        **_summary(judged, alike, found),
        "beside": {"raw activations": _values(found.raw), "the mean": _values(found.mean)},
        "probes": {data: _nested(accuracies) for data, accuracies in found.probes.items()},
        "letters": {name: [asdict(one) for one in each] for name, each in found.letters.items()},
        "warnings": found.warnings,
    }


def is_judged(run: Run, settings: Judging) -> bool:
    """Whether `judged.json` is there, with these settings."""
    path = run.path / FILE
    return path.is_file() and read_record(path).get("judging") == json.loads(json.dumps(settings.tree()))


def refuse_unfinished(run: Run) -> None:
    if (state := run.status()["state"]) != "finished":
        raise Refusal(f"{run.path} is {state}; accepted: a finished run (`{run.how_to_go_on}`)")


def refuse_unjudgeable(settings: Judging, experiments: Sequence[Experiment]) -> None:
    """Say before training what would be in the way of judging after it."""
    worlds = [one.world for one in experiments if one.is_trained and isinstance(one.world, Activations)]
    if not worlds:
        raise Refusal("judging was asked for and no dictionary is trained; accepted: a dictionary, or no judging")
    refuse_absent(settings)
    next(documents(Path(settings.text)))
    for path in settings.labels:
        read_labelled(Path(path), settings.texts)
    if settings.model not in (None, worlds[0].model):
        _refuse_another_model(worlds[0], load(settings.model))


def _first_alike(judged: Sequence[_Judged]) -> list[int]:
    """For each setting the first of its kind."""
    kinds = [one.kind for one in judged]
    return [kinds.index(kind) for kind in kinds]


def _settings(run: Run) -> tuple[list[_Judged], Experiment]:
    found: dict[str, _Judged] = {}
    first: Experiment | None = None
    members = expand(run.config(), str(run.path))
    for index, group in enumerate(plan(members)):
        if not group[0].experiment.is_trained:
            continue
        first, stack = first or group[0].experiment, load_stack(run.path, index)
        _refuse_several(first.world, group[0].experiment.world, run)
        for position, member in enumerate(group):
            one = found.setdefault(json.dumps(member.setting), _Judged(member.setting))
            one.members.append({"stack": index, "member": position, **_without_setting(member.card())})
            one.lenses[member.replicate()] = Lens(stack.member(position))
    if first is None:
        raise Refusal(f"{run.path} holds no trained dictionary; accepted: a run that trains some")
    swept = dict.fromkeys(json.dumps(member.setting) for member in members)
    return [found[key] for key in swept if key in found], first


def _without_setting(card: Tree) -> Tree:
    return {key: value for key, value in card.items() if key != "setting"}


def _trained_on(first: Experiment, run: Run) -> Activations:
    if isinstance(first.world, Activations):
        return first.world
    raise Refusal(f"{run.path} was not trained on a model's activations; accepted: --site and a model of its width")


def _refuse_several(first: World, other: World, run: Run) -> None:
    """One judging reads one site of one model."""
    if isinstance(first, Activations) and isinstance(other, Activations) and first.checksum != other.checksum:
        raise Refusal(f"{run.path} was trained on {first.path} and on {other.path}; accepted: a run on one of them")


def _refuse_another_model(world: Activations, model: Model) -> None:
    origin = Shards.open(world.path).manifest.origin
    if origin.weights != fingerprint(model.model.state_dict()):
        raise Refusal(f"{world.path} holds activations of {origin.model}, and {model.name} has other weights")


def _summary(judged: Sequence[_Judged], alike: Sequence[int], found: Judgement) -> Tree:
    values = [_columns(index, one, found.scores) for index, one in enumerate(judged)]
    cards = [
        {
            "label": label(one.setting),
            "setting": one.setting,
            "members": one.members,
            "metrics": {
                name: _metric(index, alike[index], name, column, found.scores) for name, column in values[index].items()
            },
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


def _metric(index: int, alike: int, name: str, column: Mapping[str, float], scores: Mapping[str, Scores]) -> Tree:
    """`alike` is the setting whose random dictionaries are its own too."""
    mean = estimate(list(column.values()))
    by_chance = [each[name][0] for key, each in scores.items() if key.startswith(f"{alike}/chance ") and name in each]
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
