"""All scores of dictionaries on a language model: loss recovered, sparse probing, first-letter absorption.

`summarize` gives them setting by setting, with intervals over replicates and chance, as `language_model.json` holds
them: `settings` and `differences` as in scores.json, and with each score its `error`, the standard error from the
choice of the texts (a single replicate has no interval); `baselines`, the scores of raw activations and of an ablation
by the mean; `probes` by data set and `letters` by letter, of every dictionary by setting/replicate; `warnings`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import Site
from unbraid.activations.text import Window, context_length, cut_windows
from unbraid.config import JsonDict
from unbraid.errors import UserError
from unbraid.evaluation.language_model.config import PROGRESS_STEPS, LanguageModelEvaluation
from unbraid.evaluation.language_model.labelled import read_labelled
from unbraid.evaluation.language_model.probing import RAW, probe_texts
from unbraid.evaluation.language_model.sae import SAE, check_width, read_rows, token_batches
from unbraid.evaluation.language_model.spelling import absorption, read_words
from unbraid.evaluation.language_model.splicing import MEAN, Scores, score_reconstructions
from unbraid.metrics import probing
from unbraid.metrics.absorption import FEWEST_LETTERS, WARNING, LetterAbsorption, probe_letters
from unbraid.metrics.intervals import estimate, paired_difference
from unbraid.metrics.probing import Accuracies
from unbraid.progress import ReportShare, TaskProgress
from unbraid.randomness import stream

CHANCE_DRAWS = 3
NOT_COMPARED = ("ce_clean", "ce_zero", "ce_mean")
"""Scores of the model, the same for every dictionary."""


@dataclass(frozen=True)
class LanguageModelScores:
    """Scores by dictionary, of raw activations, and of the ablation by the mean; each probe and letter; warnings."""

    scores: dict[str, Scores]
    raw: Scores
    mean: Scores
    probes: dict[str, dict[str, Accuracies]]
    letters: dict[str, list[LetterAbsorption]]
    warnings: list[str]


class _Parts:
    """Reports the progress of one part of the evaluation after the other."""

    def __init__(self, progress: TaskProgress) -> None:
        self._progress, self._index, self._name = progress, -1, ""

    def begin(self, name: str) -> ReportShare:
        self._index, self._name = self._index + 1, name
        self._progress.status(name)
        return self._advance

    def _advance(self, share: float) -> None:
        self._progress.advance(int((self._index + share) * PROGRESS_STEPS))
        self._progress.note(f"{self._name}: {share:.0%}")


def evaluate_on_model(
    model: HuggingFaceModel,
    site: Site,
    saes: Mapping[str, SAE],
    config: LanguageModelEvaluation,
    progress: TaskProgress,
    target: Site | None = None,
) -> LanguageModelScores:
    """Evaluate dictionaries on a language model; what does not apply to the model is left out with a warning.

    Parameters
    ----------
    model
        The model, as `load_model` gives it.
    site
        Where in the model the dictionaries apply.
    saes
        The dictionaries by name, in the units of the model's activations.
    config
        The texts, and how much of them is read. `config.model` and `config.site` are not used.
    progress
        Shows progress.
    target
        What transcoders predict from the site, and replace; None for autoencoders of the site.

    Returns
    -------
    The scores of every dictionary, each with its standard error where it is known.
    """
    context = context_length(model, config.context)
    datasets = [read_labelled(Path(path), config.texts, config.label_columns) for path in config.labels]
    windows = _windows(model, context, config)
    width = read_rows(model, site, next(token_batches(model, windows))).shape[1]
    check_width(saes.values(), width, f"'{site.name}' of {model.name}")
    parts = _Parts(progress)
    splicing = parts.begin("splicing reconstructions in")
    scores = score_reconstructions(model, site, windows, saes, splicing, target)
    mean = scores.pop(MEAN, {})
    warnings = [] if model.is_causal else [f"{model.name} predicts no next token: there is no loss to recover"]
    probes = {
        data.name: probe_texts(model, site, data, saes, context, parts.begin(f"probing {data.name}"))
        for data in datasets
    }
    letters: dict[str, list[LetterAbsorption]] = {}
    if config.letters:
        report = parts.begin("measuring first-letter absorption")
        words = read_words(model, site)
        letters = absorption(words, probe_letters(words), saes, report)
        warnings += _letter_warnings(letters)
    scores = {
        name: {**scores[name], **_probe_scores(probes, name), **_letter_scores(letters.get(name, []))} for name in saes
    }
    return LanguageModelScores(scores, _probe_scores(probes, RAW), mean, probes, letters, warnings)


def _windows(model: HuggingFaceModel, context: int, config: LanguageModelEvaluation) -> list[Window]:
    windows = list(cut_windows(model, config.source.documents(), context, config.tokens))
    if not windows:
        raise UserError(
            f"{config.source.name} holds no tokens but special ones; accepted: a text with at least one word"
        )
    return windows


def _probe_scores(probes: Mapping[str, Mapping[str, Accuracies]], name: str) -> Scores:
    """Means over data sets: `probe_1`, …, `probe_full`."""
    mean = probing.average([accuracies[name] for accuracies in probes.values()])
    return {f"probe_{k}": (accuracy.value, accuracy.error) for k, accuracy in mean.items()}


def _letter_scores(letters: Sequence[LetterAbsorption]) -> Scores:
    """Means over letters, with their standard errors; nothing where no letter has a good probe."""
    if not letters:
        return {}
    columns = {
        "letter_absorption": [letter.full for letter in letters],
        "letter_absorption_fraction": [letter.fraction for letter in letters],
        "letter_splits": [float(len(letter.split)) for letter in letters],
    }
    several = len(letters) > 1
    return {
        name: (float(np.mean(column)), float(np.std(column, ddof=1) / len(column) ** 0.5) if several else None)
        for name, column in columns.items()
    }


def _letter_warnings(letters: Mapping[str, Sequence[LetterAbsorption]]) -> list[str]:
    most = max((len(by_letter) for by_letter in letters.values()), default=0)
    few = f"only {most} letters can be probed in these activations; SAEBench asks for {FEWEST_LETTERS}"
    return [WARNING] if most >= FEWEST_LETTERS else [WARNING, few]


@dataclass(frozen=True)
class SettingSAEs:
    """The dictionaries of one setting by replicate, and what `language_model.json` says of each member."""

    setting: JsonDict
    label: str
    members: list[JsonDict] = field(default_factory=list)
    saes: dict[str, SAE] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[object, ...]:
        """Settings of one size and rule share random dictionaries, unless the rule has learned something."""
        first = next(iter(self.saes.values()))
        stack = first.stack
        return stack.features, stack.activation, stack.pre_bias is None, id(first) if first.rule_learns else None

    def random(self) -> list[SAE]:
        seeds = stream(0, "chance").integers(0, 1 << 32, CHANCE_DRAWS).tolist()
        return [sae.at_random(seed) for sae, seed in zip(self.saes.values(), seeds, strict=False)]


def evaluate_settings(
    model: HuggingFaceModel,
    site: Site,
    settings: Sequence[SettingSAEs],
    config: LanguageModelEvaluation,
    progress: TaskProgress,
    target: Site | None = None,
) -> JsonDict:
    """Evaluate the dictionaries of every setting beside random ones: what `language_model.json` holds."""
    kinds = [setting.kind for setting in settings]
    shared = [kinds.index(kind) for kind in kinds]
    saes = {f"{i}/{replicate}": sae for i, setting in enumerate(settings) for replicate, sae in setting.saes.items()}
    random = {f"{i}/chance {k}": sae for i in sorted(set(shared)) for k, sae in enumerate(settings[i].random())}
    scores = evaluate_on_model(model, site, {**saes, **random}, config, progress, target)
    return {
        "model": model.name,
        "site": site.name if target is None else f"{site.name} → {target.name}",
        "text": config.source.name,
        "labelled": list(config.labels),
        "config": config.to_dict(),
        **summarize(settings, shared, scores),
        "baselines": {"raw activations": _values(scores.raw), "the mean": _values(scores.mean)},
        "probes": {data: _nested(accuracies) for data, accuracies in scores.probes.items()},
        "letters": {name: [asdict(letter) for letter in letters] for name, letters in scores.letters.items()},
        "warnings": scores.warnings,
    }


def summarize(settings: Sequence[SettingSAEs], shared: Sequence[int], scores: LanguageModelScores) -> JsonDict:
    """Mean and interval of every score by setting, and the differences from the first setting.

    `shared` has for every setting the one whose random dictionaries are its chance.
    """
    values = [_columns(index, setting, scores.scores) for index, setting in enumerate(settings)]
    summaries = [
        {
            "label": setting.label,
            "setting": setting.setting,
            "members": setting.members,
            "metrics": {
                name: _metric(index, shared[index], name, column, scores.scores)
                for name, column in values[index].items()
            },
        }
        for index, setting in enumerate(settings)
    ]
    differences = [
        _difference(index, name, values[index][name], values[0][name])
        for index in range(1, len(settings))
        for name in values[index]
        if name in values[0] and name not in NOT_COMPARED
    ]
    return {"settings": summaries, "differences": differences}


def _columns(index: int, setting: SettingSAEs, scores: Mapping[str, Scores]) -> dict[str, dict[str, float]]:
    """Each score by replicate."""
    of_setting = {replicate: scores[f"{index}/{replicate}"] for replicate in setting.saes}
    names = dict.fromkeys(name for by_name in of_setting.values() for name in by_name)
    return {
        name: {replicate: by_name[name][0] for replicate, by_name in of_setting.items() if name in by_name}
        for name in names
    }


def _metric(index: int, shared: int, name: str, column: Mapping[str, float], scores: Mapping[str, Scores]) -> JsonDict:
    mean = estimate(list(column.values()))
    prefix = f"{shared}/chance "
    chance = [by_name[name][0] for key, by_name in scores.items() if key.startswith(prefix) and name in by_name]
    errors = [scores[f"{index}/{replicate}"][name][1] for replicate in column]
    known = [error for error in errors if error is not None]
    return {
        "value": mean.value,
        "interval": mean.interval,
        "error": float(np.mean(known)) if known else None,
        "chance": float(np.mean(chance)) if chance and not name.startswith("ce_") else None,
        "ceiling": None,
        "members": list(column.values()),
    }


def _difference(index: int, name: str, values: Mapping[str, float], reference: Mapping[str, float]) -> JsonDict:
    difference = paired_difference(values, reference)
    mean = difference.estimate
    summary = {"setting": index, "reference": 0, "metric": name, "value": mean.value, "interval": mean.interval}
    return {**summary, "pairs": difference.pairs, "verdict": difference.verdict}


def _nested(accuracies: Mapping[str, Accuracies]) -> JsonDict:
    return {name: {k: asdict(accuracy) for k, accuracy in by_k.items()} for name, by_k in accuracies.items()}


def _values(scores: Scores) -> JsonDict:
    return {name: {"value": value, "error": error} for name, (value, error) in scores.items()}
