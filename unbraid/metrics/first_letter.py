"""Absorption in a language model: does a feature for a first letter stay silent where a feature of the word stands in?

For each letter, on words split into training and test:
    probe     logistic regression on raw activations: direction p, and its F1 on the test words
    split     the features that mean the letter, found on the codes of the training words (see splitting)
    on every test word the probe gets right, with a·cos(d, p) what a feature of value a writes along p:
    full      all split features are silent, and the one that writes most along p has cos ≥ .025 and ≥ .4 of x·p
    fraction  A / (A + M): M what split features write, A what up to three others with cos ≥ .1 do, no more than is
              missing; 0 where A < .4 x·p or M ≥ x·p

Means over words, then over letters with F1 ≥ .6. The rules are SAEBench's; the words here are pieces of a vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_lowercase

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.absorption import ABSORBERS, FRACTION_COSINE, FULL_COSINE, SHARE, SILENT
from unbraid.metrics.logistic import fit_logistic
from unbraid.metrics.splitting import f1, rank_positive, split_features

LEAST_F1, FEWEST_WORDS, FEWEST_LETTERS = 0.6, 10, 20
"""A letter with fewer test words is left out; with fewer letters than this SAEBench gives no score."""


@dataclass(frozen=True)
class Words:
    """Activations of words at one site, their first letters as places in the alphabet, and which are for training."""

    activations: Float[np.ndarray, "b d"]
    letters: Int[np.ndarray, "b"]
    train: Bool[np.ndarray, "b"]


@dataclass(frozen=True)
class LetterProbe:
    """The unit direction that tells a letter, its F1 on test words, and the test words it is right about."""

    letter: int
    direction: Float[np.ndarray, "d"]
    f1: float
    words: Int[np.ndarray, "words"]


@dataclass(frozen=True)
class LetterAbsorption:
    letter: str
    probe_f1: float
    words: int
    split: tuple[int, ...]
    full: float
    fraction: float


def probe_letters(words: Words) -> list[LetterProbe]:
    """A probe for every letter that has enough words and is told well enough; the same for every dictionary."""
    scaled = words.activations / max(float(np.sqrt((words.activations**2).sum() / max(len(words.letters), 1))), SILENT)
    probes = []
    for letter in range(len(ascii_lowercase)):
        known = words.letters == letter
        if min(known[words.train].sum(), known[~words.train].sum()) < FEWEST_WORDS:
            continue
        fitted = fit_logistic(scaled[words.train], known[words.train], balanced=True)
        said, weights = fitted.predict(scaled), fitted.coef_[0]
        score = f1(said[~words.train], known[~words.train])
        if score >= LEAST_F1:
            direction = (weights / np.linalg.norm(weights)).astype(words.activations.dtype)
            probes.append(LetterProbe(letter, direction, score, np.flatnonzero(said & known & ~words.train)))
    return probes


def absorption_by_letter(
    words: Words, probes: Sequence[LetterProbe], codes: sparse.csr_array, directions: Float[np.ndarray, "f d"]
) -> list[LetterAbsorption]:
    """How a dictionary's codes of these words absorb each of the letters probed."""
    if not probes:
        return []
    scaled = codes[words.train] / max(float(np.sqrt((codes**2).sum(1).mean())), SILENT)
    known = np.stack([words.letters[words.train] == probe.letter for probe in probes], 1)
    ranked = rank_positive(sparse.csr_array(scaled), known)
    unit = directions / np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), SILENT)
    found = []
    for column, probe in enumerate(probes):
        split = split_features(scaled[:, ranked[column]].toarray(), known[:, column])
        main, whole = ranked[column][:split], words.activations[probe.words] @ probe.direction
        full, fraction = word_absorption(codes[probe.words], unit @ probe.direction, main, whole)
        card = ascii_lowercase[probe.letter], probe.f1, len(probe.words), tuple(main.tolist())
        found.append(LetterAbsorption(*card, float(full.mean()), float(fraction.mean())))
    return found


def word_absorption(
    codes: sparse.csr_array,
    cosines: Float[np.ndarray, "f"],
    main: Int[np.ndarray, "split"],
    projection: Float[np.ndarray, "b"],
) -> tuple[Bool[np.ndarray, "b"], Float[np.ndarray, "b"]]:
    """For each word whether its letter is fully absorbed, and the fraction absorbed."""
    full, fraction = np.zeros(len(projection), bool), np.zeros(len(projection))
    for word, (start, end) in enumerate(pairwise(np.asarray(codes.indptr))):
        features, values = codes.indices[start:end], codes.data[start:end]
        written, ours = values * cosines[features], np.isin(features, main)
        full[word] = _is_full(values, written, cosines[features], ours, float(projection[word]))
        others = written[~ours & (cosines[features] >= FRACTION_COSINE) & (written > 0)]
        absorbed = float(np.sort(others)[-ABSORBERS:].sum())
        fraction[word] = _fraction(absorbed, float(written[ours].sum()), float(projection[word]))
    return full, fraction


def _is_full(values: np.ndarray, written: np.ndarray, cosines: np.ndarray, ours: np.ndarray, whole: float) -> bool:
    if whole <= 0 or written.size == 0 or (np.abs(values[ours]) >= SILENT).any():
        return False
    top = int(written.argmax())
    return bool(cosines[top] >= FULL_COSINE and written[top] >= SHARE * whole)


def _fraction(absorbed: float, kept: float, whole: float) -> float:
    if kept >= whole or whole <= 0 or absorbed < SHARE * whole:
        return 0.0
    missing = min(absorbed, whole - kept)
    return 1.0 if kept <= 0 else missing / (missing + kept)
