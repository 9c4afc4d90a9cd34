"""Every score of dictionaries on a model: fidelity on a text, probing on labelled texts, absorption of letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from unbraid.capture.models import Model
from unbraid.capture.sites import Site
from unbraid.capture.texts import documents
from unbraid.capture.windows import windows
from unbraid.config import Record
from unbraid.errors import Refusal
from unbraid.judging.labelled import read_labelled
from unbraid.judging.lens import Lens, refuse_another_width
from unbraid.judging.passage import passages, rows
from unbraid.judging.pooling import RAW, probe_texts
from unbraid.judging.spelling import absorption, read_words
from unbraid.judging.splicing import MEAN, Scores, fidelity
from unbraid.metrics import probing
from unbraid.metrics.absorption import WARNING
from unbraid.metrics.first_letter import FEWEST_LETTERS, LetterAbsorption, probe_letters
from unbraid.metrics.probing import Accuracies
from unbraid.progress import Watcher


class Judging(Record):
    """How much is read: tokens of the text, labelled texts of each file, tokens of a window; and letters or not."""

    tokens: int = Field(default=8192, ge=2, le=10**9)
    texts: int = Field(default=1000, ge=100, le=10**7)
    context: int = Field(default=128, ge=2, le=1 << 20)
    letters: bool = True


@dataclass(frozen=True)
class Judgement:
    """Scores by dictionary, of raw activations, and of the ablation by the mean; each letter; what to be wary of."""

    scores: dict[str, Scores]
    raw: Scores
    mean: Scores
    probes: dict[str, dict[str, Accuracies]]
    letters: dict[str, list[LetterAbsorption]]
    warnings: list[str]


def judge(
    model: Model,
    site: Site,
    lenses: Mapping[str, Lens],
    text: Path,
    labelled: Sequence[Path],
    settings: Judging,
    watcher: Watcher,
) -> Judgement:
    """All of it; what does not apply to this model is left out, with a warning."""
    context = min(settings.context, model.context)
    sets = [read_labelled(path, settings.texts) for path in labelled]
    chosen = list(windows(model, documents(text), context, settings.tokens))
    if not chosen:
        raise Refusal(f"{text} holds no tokens but special ones; accepted: a text with at least one word")
    refuse_another_width(
        lenses.values(),
        rows(model, site, next(passages(model, chosen))).shape[1],
        f"'{site.name}' of {model.name}",
    )
    watcher.plan([(1 + len(sets) + settings.letters, 1.0)])
    watcher.stage("splicing reconstructions in")
    scores = fidelity(model, site, chosen, lenses)
    mean = scores.pop(MEAN, {})
    warnings = [] if model.is_causal else [f"{model.name} predicts no next token: there is no loss to recover"]
    probes: dict[str, dict[str, Accuracies]] = {}
    for place, one in enumerate(sets, 1):
        watcher.advance(0, place)
        watcher.stage(f"probing {one.name}")
        probes[one.name] = probe_texts(model, site, one, lenses, context)
    letters: dict[str, list[LetterAbsorption]] = {}
    if settings.letters:
        watcher.advance(0, 1 + len(sets))
        watcher.stage("looking for absorbed letters")
        words = read_words(model, site)
        letters = absorption(words, probe_letters(words), lenses)
        warnings += _letter_warnings(letters)
    found = {
        name: {**scores[name], **_probe_scores(probes, name), **_letter_scores(letters.get(name, []))}
        for name in lenses
    }
    return Judgement(found, _probe_scores(probes, RAW), mean, probes, letters, warnings)


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
