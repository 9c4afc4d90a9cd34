"""Sentences about pipelines: models trained, activations captured, dictionaries learned from them."""

import json
import math
from collections.abc import Iterable

from unbraid.config import REPLICATES, JsonDict
from unbraid.reports import sentences
from unbraid.reports.configurations import flat_sweep, setting_configs, sweep_size
from unbraid.reports.dictionary_sentences import dictionaries
from unbraid.reports.factors import factor_scores
from unbraid.reports.language_models import by_kind, describe_models
from unbraid.reports.matching_words import LEADING
from unbraid.reports.model_sentences import models_trained
from unbraid.reports.phrases import at, either, enabled_sentence, phrase, setting_phrase
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.words import count, estimate, number

MOST_NAMED = 6
"""Settings whose accuracies are named one by one."""
OF_THE_MODEL = ("world", "model", "constraints")
"""The tables of a configuration that decide the model."""
REFERENCES = (
    "Chance of φ and of the verdicts on concepts and features is that of random dictionaries of the same size, fired "
    "by the same rule; of DCI, MIG, SAP and modularity it is the same code with the factors' rows shuffled. The "
    "ceiling of φ is a linear probe on the same activations. All is measured on stories that no training has seen."
)
PRINTED = (*LEADING, "l0", "explained_variance", "accuracy")
"""Of the many scores of a pipeline those that are printed."""
SEED_NAMES = {"world.seed": "worlds of stories", "model.seed": "trained models", "seed": "initializations"}
SHARED = "All learn from one model; other models may differ by more."


def what_was_run(config: JsonDict) -> list[str]:
    """The models, their stories, what was captured, what was learned from it, and what was compared."""
    trained = models_trained(config, _models(config), "")
    kinds = describe_models(config) if set(by_kind(config)) != {"transformer"} else []
    site = setting_phrase(config, "activations.site")
    captured = (
        f"Captured: {site} at every token of {setting_phrase(config, 'activations.stories')} stories that no model was "
        f"trained on, normalized: {setting_phrase(config, 'activations.normalize')}."
    )
    mechanisms, compared = enabled_sentence(config, "mechanisms"), sentences.compared_sentence(config)
    return [*trained, *kinds, captured, _learned(config), *mechanisms, *compared]


def _models(config: JsonDict) -> int:
    """How many different models there are: by what decides one, and the seeds of models and worlds."""
    sweep = flat_sweep(config)
    seeds = math.prod(len(sweep[path]) for path in REPLICATES if path in sweep and path != "seed")
    kinds = {json.dumps([tree.get(name) for name in OF_THE_MODEL], sort_keys=True) for tree in _trees(config)}
    return len(kinds) * seeds


def _learned(config: JsonDict) -> str:
    """How the dictionaries were trained, and what the baselines are."""
    _, replicates = sweep_size(config)
    trees = _trees(config)
    baselines = [tree for tree in trees if tree.get("baseline")]
    trained = [tree for tree in trees if not tree.get("baseline")]
    parts: list[str] = []
    if trained:
        parts.append(
            f"{dictionaries(len(trained) * replicates)} of {_either(trained, 'dictionary.d_sae')} features "
            f"({_either(trained, 'dictionary.activation')}), trained for {_either(trained, 'training.steps')} steps of "
            f"{_either(trained, 'training.batch')} tokens at learning rate {_either(trained, 'training.learning_rate')}"
        )
    if baselines:
        kinds = dict.fromkeys(phrase(tree["baseline"]) for tree in baselines)
        parts.append(f"{count(len(baselines) * replicates, 'baseline')} ({', '.join(kinds)})")
    scored = f"scored on {setting_phrase(config, 'evaluation.samples')} tokens of held-out stories"
    models = " Replicates are models trained from other seeds." if "model.seed" in flat_sweep(config) else ""
    learned = f"Learned from these activations{sentences.grid_phrase(config)}: {' and '.join(parts)}"
    return f"{learned}; {scored}.{models}"


def _either(trees: Iterable[JsonDict], path: str) -> str:
    return either(phrase(value) for tree in trees if (value := at(tree, path)) is not None)


def _trees(config: JsonDict) -> list[JsonDict]:
    return [tree for _, tree in setting_configs(config)]


def headline(results: RunResults) -> str:
    """The best φ, beside a random dictionary and a linear probe."""
    best = results.best()
    if best is None:
        return sentences.headline(results)
    score = best.scores[results.leading]
    return sentences.headline(results, [("random dictionary", score.chance), ("linear probe", score.ceiling)])


def details(results: RunResults) -> list[str]:
    """What φ is, which factors are recovered best and worst, the verdicts on concepts, and how the models answer."""
    best = results.best()
    if best is None:
        return []
    meaning = (
        "φ is the Matthews correlation of a concept (a value of a factor, as person = mary) with the feature that "
        "predicts it best, mean over concepts; 1 is perfect."
    )
    warnings = [sentences.selection_warning(results), _different_models(results)]
    found = [meaning, *_extremes(best), _verdicts(best), *warnings, *reached(results)]
    return [sentence for sentence in found if sentence]


def error_bar(results: RunResults) -> str:
    return sentences.error_bar(results, SEED_NAMES, SHARED)


def _extremes(best: Setting) -> list[str]:
    known = [(score.value, name, score) for name, score in factor_scores(best).items() if score.value is not None]
    if len(known) < 2:
        return []
    (_, worst, low), *_, (_, top, high) = sorted(known, key=lambda factor: factor[0])
    return [
        f"{which}-recovered factor: {name} (φ {number('phi', score.value)}{_probed(score.ceiling)})."
        for which, name, score in (("Best", top, high), ("Worst", worst, low))
    ]


def _probed(ceiling: float | None) -> str:
    return "" if ceiling is None else f"; linear probe {number('phi', ceiling)}"


def _verdicts(best: Setting) -> str:
    recovered, missed = best.value("factors_recovered"), best.value("factors_missed")
    if recovered is None or missed is None:
        return ""
    return f"Concepts: {100 * recovered:.0f} % have a feature of their own, {100 * missed:.0f} % are missed."


def reached(results: RunResults) -> list[str]:
    """The accuracy of the models: once where all settings learn from the same, else setting by setting."""
    found = {one.label: one.scores["accuracy"] for one in results.settings if "accuracy" in one.scores}
    if not found:
        return []
    first = next(iter(found.values()))
    chance = "" if first.chance is None else f" (chance {number('accuracy', first.chance)})"
    if same_models(results):
        return [f"Accuracy of the models: {estimate('accuracy', first)}{chance}."]
    if len(found) > MOST_NAMED:
        ranked = sorted(found, key=lambda label: found[label].value or 0.0)
        least, most = (f"{estimate('accuracy', found[label])} ({label})" for label in (ranked[0], ranked[-1]))
        return [f"Accuracy of the models{chance}: from {least} to {most}."]
    named = [f"{label} {estimate('accuracy', score)}" for label, score in found.items()]
    return [f"Accuracy of the models{chance}: {'; '.join(named)}."]


def same_models(results: RunResults) -> bool:
    """Whether all settings learn from models that answer exactly alike: the same ones."""
    accuracies = [one.scores["accuracy"].members for one in results.settings if "accuracy" in one.scores]
    return all(members == accuracies[0] for members in accuracies)


def _different_models(results: RunResults) -> str:
    if same_models(results):
        return ""
    return "Settings learn from different models, which may differ in accuracy: see the verdicts at equal accuracy."
