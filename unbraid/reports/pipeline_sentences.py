"""Say in plain sentences what a line did: models trained, what was recorded of them, what was learned from that."""

import json
import math
from collections.abc import Iterable

from unbraid.config import REPLICATES, JsonDict
from unbraid.reports.configurations import flat_sweep, setting_configs
from unbraid.reports.factors import factor_scores
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.language_models import by_kind, describe_models
from unbraid.reports.model_sentences import what_was_trained
from unbraid.reports.phrases import at, either, phrase, said, enabled_sentence
from unbraid.reports.words import count, estimate, number

MOST_NAMED = 6
"""Settings whose accuracies are described one by one."""
OF_THE_MODEL = ("world", "model", "constraints", "teaching")
LINE_CHANCE = (
    "Chance of recovery and of what became of concepts and features is that of random dictionaries of the same size, "
    "fired by the same rule; of DCI, MIG, SAP and modularity it is the same code with the factors' rows shuffled. The "
    "ceiling of recovery is a linear probe on the same activations. All is measured on stories that no training has "
    "seen."
)


def what_was_learned(config: JsonDict, settings: int, replicates: int) -> list[str]:
    """The models, their stories, what was recorded, what was learned from it, and what was compared."""
    models = _models(config)
    trained = what_was_trained(config, models, "")
    kinds = describe_models(config) if set(by_kind(config)) != {"transformer"} else []
    site = said(config, "capture.site")
    recorded = (
        f"Recorded: {site} at every token of {said(config, 'capture.stories')} stories that no model was trained on, "
        f"normalized: {said(config, 'capture.normalize')}."
    )
    return [*trained, *kinds, recorded, *_learned(config, settings, replicates), *enabled_sentence(config, "mechanisms")]


def _models(config: JsonDict) -> int:
    """How many different models there are: by what decides one, and the seeds of models and worlds."""
    sweep = flat_sweep(config)
    seeds = math.prod(len(sweep[path]) for path in REPLICATES if path in sweep and path != "seed")
    kinds = {json.dumps([tree.get(name) for name in OF_THE_MODEL], sort_keys=True) for tree in _trees(config)}
    return len(kinds) * seeds


def _learned(config: JsonDict, settings: int, replicates: int) -> list[str]:
    """Of the dictionaries how they were trained, of the baselines what they are."""
    trees = _trees(config)
    baselines = [tree for tree in trees if tree.get("baseline")]
    dictionaries = [tree for tree in trees if not tree.get("baseline")]
    parts: list[str] = []
    if dictionaries:
        described = {path: _either(dictionaries, path) for path in TOLD}
        amount = len(dictionaries) * replicates
        parts.append(
            f"{'1 dictionary' if amount == 1 else f'{amount} dictionaries'} of {described['dictionary.d_sae']} features "
            f"({described['dictionary.activation']}), trained for {described['training.steps']} steps of "
            f"{described['training.batch']} tokens at learning rate {described['training.learning_rate']}"
        )
    if baselines:
        kinds = dict.fromkeys(phrase(tree["baseline"]) for tree in baselines)
        parts.append(f"{count(len(baselines) * replicates, 'baseline')} ({', '.join(kinds)})")
    grid = f" ({count(settings, 'setting')} × {count(replicates, 'replicate')})" if settings * replicates > 1 else ""
    scored = f"scored on {said(config, 'scoring.samples')} tokens of stories held out"
    again = " Replicates are models trained from other seeds." if "capture.seed" in flat_sweep(config) else ""
    return [f"Learned from these activations{grid}: {' and '.join(parts)}; {scored}.{again}"]


TOLD = ("dictionary.d_sae", "dictionary.activation", "training.steps", "training.batch", "training.learning_rate")


def _either(trees: Iterable[JsonDict], path: str) -> str:
    return either(phrase(value) for tree in trees if (value := at(tree, path)) is not None)


def _trees(config: JsonDict) -> list[JsonDict]:
    return [tree for _, tree in setting_configs(config)]


def headline(results: RunResults) -> str:
    """The best setting's recovery, beside a random dictionary and the probe."""
    best = results.best()
    if best is None:
        return "No setting has a recovery: nothing can be said about the planted factors."
    score, amount = best.scores["recovery"], len(results.settings)
    subject = f"Best of {amount} settings: {best.label}" if amount > 1 else "The dictionary"
    against = [
        f"{what} {number('recovery', value)}"
        for what, value in (("a random dictionary has", score.chance), ("a linear probe", score.ceiling))
        if value is not None
    ]
    where = f", where {' and '.join(against)}" if against else ""
    return f"{subject} recovers planted factors with φ {estimate('recovery', score)}{where}."


def details(results: RunResults) -> list[str]:
    """What φ is, which factors are described best and worst, and what became of the concepts."""
    best = results.best()
    if best is None:
        return []
    meaning = (
        "φ is the Matthews correlation of a concept (a value of a factor, as person = mary) with the one feature that "
        "tells it best, mean over concepts; 1 is perfect."
    )
    sentences = [meaning, _extremes(best), _verdicts(best), _picked(results), _unlike(results)]
    return [sentence for sentence in sentences if sentence]


def _extremes(best: Setting) -> str:
    found = [(score.value, name, score) for name, score in factor_scores(best).items() if score.value is not None]
    if len(found) < 2:
        return ""
    (_, worst, low), *_, (_, top, high) = sorted(found, key=lambda one: one[0])
    ends = [
        f"{name} ({number('recovery', score.value)}{_probed(score.ceiling)})"
        for name, score in ((top, high), (worst, low))
    ]
    return f"It tells {ends[0]} best and {ends[1]} worst."


def _probed(ceiling: float | None) -> str:
    return "" if ceiling is None else f", probe {number('recovery', ceiling)}"


def _verdicts(best: Setting) -> str:
    own, missed = best.value("factors_recovered"), best.value("factors_missed")
    if own is None or missed is None:
        return ""
    return f"Of the concepts {100 * own:.0f} % have one feature of their own, and {100 * missed:.0f} % are missed."


def reached(results: RunResults) -> list[str]:
    """How well the models answer: once where all settings learn from the same, else setting by setting."""
    found = {one.label: one.scores["accuracy"] for one in results.settings if "accuracy" in one.scores}
    if not found:
        return []
    first = next(iter(found.values()))
    chance = "" if first.chance is None else f", where a rule of thumb has {number('accuracy', first.chance)}"
    if same_models(results):
        return [f"The models answer {estimate('accuracy', first)} of the questions right{chance}."]
    each = [f"{label} {estimate('accuracy', score)}" for label, score in found.items()]
    if len(each) > MOST_NAMED:
        ranked = sorted(found, key=lambda label: found[label].value or 0.0)
        least, most = (f"{estimate('accuracy', found[label])} ({label})" for label in (ranked[0], ranked[-1]))
        return [f"Questions answered right by the models{chance}: from {least} to {most}."]
    return [f"Questions answered right by the models{chance}: {'; '.join(each)}."]


def same_models(results: RunResults) -> bool:
    """Whether all settings learn from models that answer exactly alike: the same ones."""
    each = [one.scores["accuracy"].members for one in results.settings if "accuracy" in one.scores]
    return all(members == each[0] for members in each)


def _picked(results: RunResults) -> str:
    several = len(results.settings) > 2
    return "It was picked by this very score: expect slightly less on fresh models." if several else ""


def _unlike(results: RunResults) -> str:
    if same_models(results):
        return ""
    return "Settings learn from other models, which may not answer equally well: see the verdicts at equal accuracy."


def replicated(worlds: int, models: int, seeds: int) -> str:
    """What replicates differ in."""
    parts = [
        f"{path} ({amount} {what})"
        for path, amount, what in (
            ("world.seed", worlds, "worlds of stories"),
            ("capture.seed", models, "models, each trained from another start"),
            ("seed", seeds, "starts of the dictionary"),
        )
        if amount > 1
    ]
    alone = " All learn from one model; other models may differ by more." if models == 1 and worlds == 1 else ""
    return f"{' and '.join(parts)}.{alone}"
