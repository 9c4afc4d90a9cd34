"""Every score of dictionaries on a model: fidelity on a text, probing on labelled texts, absorption of letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unbraid.capture.models import Model
from unbraid.capture.sites import Site
from unbraid.capture.texts import documents
from unbraid.capture.windows import Window, context_of, windows
from unbraid.errors import Refusal
from unbraid.judging.labelled import read_labelled
from unbraid.judging.lens import Lens, refuse_another_width
from unbraid.judging.passage import passages, rows
from unbraid.judging.pooling import RAW, probe_texts
from unbraid.judging.settings import STAGE, Judging
from unbraid.judging.spelling import absorption, read_words
from unbraid.judging.splicing import MEAN, Scores, fidelity
from unbraid.metrics import probing
from unbraid.metrics.absorption import WARNING
from unbraid.metrics.first_letter import FEWEST_LETTERS, LetterAbsorption, probe_letters
from unbraid.metrics.probing import Accuracies
from unbraid.progress import Told, Watcher


@dataclass(frozen=True)
class Judgement:
    """Scores by dictionary, of raw activations, and of the ablation by the mean; each letter; what to be wary of."""

    scores: dict[str, Scores]
    raw: Scores
    mean: Scores
    probes: dict[str, dict[str, Accuracies]]
    letters: dict[str, list[LetterAbsorption]]
    warnings: list[str]


class _Stages:
    """Tells a watcher the stages of the judging, one after the other, and how far each is."""

    def __init__(self, watcher: Watcher, settings: Judging) -> None:
        self._watcher, self._place, self._words = watcher, -1, ""
        watcher.plan([(settings.steps, 1.0)])

    def begin(self, words: str) -> Told:
        self._place, self._words = self._place + 1, words
        self._watcher.stage(words)
        return self._tell

    def _tell(self, share: float) -> None:
        self._watcher.advance(0, int((self._place + share) * STAGE))
        self._watcher.note(f"{self._words}: {share:.0%}")


def judge(model: Model, site: Site, lenses: Mapping[str, Lens], settings: Judging, watcher: Watcher) -> Judgement:
    """All of it; what does not apply to this model is left out, with a warning."""
    context = context_of(model, settings.context)
    sets = [read_labelled(Path(path), settings.texts) for path in settings.labels]
    chosen = _windows(model, context, settings)
    width = rows(model, site, next(passages(model, chosen))).shape[1]
    refuse_another_width(lenses.values(), width, f"'{site.name}' of {model.name}")
    stages = _Stages(watcher, settings)
    scores = fidelity(model, site, chosen, lenses, stages.begin("splicing reconstructions in"))
    mean = scores.pop(MEAN, {})
    warnings = [] if model.is_causal else [f"{model.name} predicts no next token: there is no loss to recover"]
    probes = {
        one.name: probe_texts(model, site, one, lenses, context, stages.begin(f"probing {one.name}")) for one in sets
    }
    letters: dict[str, list[LetterAbsorption]] = {}
    if settings.letters:
        told = stages.begin("looking for absorbed letters")
        words = read_words(model, site)
        letters = absorption(words, probe_letters(words), lenses, told)
        warnings += _letter_warnings(letters)
    found = {
        name: {**scores[name], **_probe_scores(probes, name), **_letter_scores(letters.get(name, []))}
        for name in lenses
    }
    return Judgement(found, _probe_scores(probes, RAW), mean, probes, letters, warnings)


def _windows(model: Model, context: int, settings: Judging) -> list[Window]:
    chosen = list(windows(model, documents(Path(settings.text)), context, settings.tokens))
    if not chosen:
        raise Refusal(f"{settings.text} holds no tokens but special ones; accepted: a text with at least one word")
    return chosen


def _probe_scores(probes: Mapping[str, Mapping[str, Accuracies]], name: str) -> Scores:
    """Means over data sets: `probe_1`, …, `probe_full`."""
    mean = probing.average([each[name] for each in probes.values()])
    return {f"probe_{k}": (accuracy.value, accuracy.error) for k, accuracy in mean.items()}


def _letter_scores(letters: Sequence[LetterAbsorption]) -> Scores:
    """Means over letters, with their standard errors; nothing where no letter can be told."""
    if not letters:
        return {}
    columns = {
        "letter_absorption": [one.full for one in letters],
        "letter_absorption_fraction": [one.fraction for one in letters],
        "letter_splits": [float(len(one.split)) for one in letters],
    }
    several = len(letters) > 1
    return {
        name: (float(np.mean(each)), float(np.std(each, ddof=1) / len(each) ** 0.5) if several else None)
        for name, each in columns.items()
    }


def _letter_warnings(letters: Mapping[str, Sequence[LetterAbsorption]]) -> list[str]:
    amount = max((len(each) for each in letters.values()), default=0)
    few = f"only {amount} letters can be told from these activations; SAEBench asks for {FEWEST_LETTERS}"
    return [WARNING] if amount >= FEWEST_LETTERS else [WARNING, few]
