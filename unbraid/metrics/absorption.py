"""Feature absorption: does a feature stay silent where a more specific one fires and writes its direction instead?

**Against a planted hierarchy**, where child c never fires without its parent p:

carried = the coefficient of p in the direction of c's match, fitted by c and p: what it writes of p beyond c's own
          = d·q / p·q,  q = p - (p·c) c
absorbed: c and p fire, p's match is silent, c's match fires: with value a, cos(d, q) ≥ .025, a · carried ≥ .4 strength
          of p
fraction: A / (A + M), M what p's match writes of p, A what the matches of its children do: at most three of them with
          cos(d, q) ≥ .1, no more than what M leaves of p's strength; 0 where A < .4 strength of p or M ≥ all of it

These are SAEBench's rules with its probe replaced by the truth: q, because a child may share a part of its parent's
direction by chance. The rate is the mean over children of how often each absorbs, given that it fires; the fraction the
mean over parents, given that a child fires. A dictionary of the true directions scores 0.

**In a language model**, by first letters.
For each letter, on words split into training and test:
    probe     logistic regression on raw activations: direction p, and its F1 on the test words
    split     the features that mean the letter, found on the codes of the training words (see splitting)
    on every test word the probe gets right, with a·cos(d, p) what a feature of value a writes along p:
    full      all split features are silent, and the one that writes most along p has cos ≥ .025 and ≥ .4 of x·p
    fraction  A / (A + M): M what split features write, A what up to three others with cos ≥ .1 do, no more than is
              missing; 0 where A < .4 x·p or M ≥ x·p

Means over words, then over letters with F1 ≥ .6. The rules are SAEBench's; the words here are pieces of a vocabulary.

Features that mean a class (feature splitting):
    L1 probe  minimises  mean over samples, a class and the others weighing one half each, of log loss  +  .01 |w|₁
    split     the features of its largest positive weights, until the next no longer adds .03 to the F1 of a logistic
              regression on them
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_lowercase

import numpy as np
import torch
from scipy import sparse

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.metrics.probing import fit_logistic

SILENT = 1e-8
FULL_COSINE, FRACTION_COSINE, SHARE, ABSORBERS = 0.025, 0.1, 0.4, 3
"""SAEBench's thresholds."""
WARNING = (
    "SAEBench warns: absorption needs a language model of at least 1B parameters and a dictionary of at least 16k "
    "features; an undertrained dictionary, or a small one, scores deceptively low. Compare only at equal L0."
)


@dataclass(frozen=True)
class Families:
    """Each true feature's parent (-1: none), and what its match writes: of its parent, and of itself."""

    parents: Int[Tensor, "n"]
    carried: Float[Tensor, "m n"]
    aligned: Float[Tensor, "m n"]
    own: Float[Tensor, "m n"]

    @classmethod
    def of(
        cls,
        truth: Float[Tensor, "n d"],
        directions: Float[Tensor, "m f d"],
        matched: Int[Tensor, "m n"],
        parents: Int[Tensor, "n"],
    ) -> "Families":
        """From true directions, learned directions, each true feature's match (-1: none) and its parent (-1: none)."""
        unit = torch.nn.functional.normalize
        truth = unit(truth.double(), dim=-1)
        above = truth[parents.clamp_min(0)] * (parents >= 0)[:, None]
        beyond = above - (above * truth).sum(-1, keepdim=True) * truth
        room = (above * beyond).sum(-1)  # 0 for the parentless, and where a child cannot be told from its parent
        beyond = torch.where(room[:, None] > SILENT, beyond, 0)
        members = torch.arange(len(directions), device=directions.device)[:, None]
        found = unit(directions.double(), dim=-1)[members, matched.clamp_min(0)] * (matched >= 0)[..., None]
        carried = (found * beyond).sum(-1) / room.clamp_min(SILENT)
        return cls(parents, carried, (found * unit(beyond, dim=-1)).sum(-1), (found * truth).sum(-1))


@dataclass(frozen=True)
class AbsorptionCounts:
    """Per true feature: as a child, how often it fired and absorbed; as a parent, how often it fired with a child, and
    the sum of fractions. Counts of parts add up."""

    fired: Int[Tensor, "m n"]
    absorbed: Int[Tensor, "m n"]
    with_child: Int[Tensor, "m n"]
    fraction: Float[Tensor, "m n"]

    def __add__(self, other: "AbsorptionCounts") -> "AbsorptionCounts":
        return AbsorptionCounts(
            self.fired + other.fired,
            self.absorbed + other.absorbed,
            self.with_child + other.with_child,
            self.fraction + other.fraction,
        )

    def by_child(self) -> Float[Tensor, "m n"]:
        """How often each child absorbs its parent, of the samples it fires in; NaN where it never did."""
        return self.absorbed / self.fired

    def by_parent(self) -> Float[Tensor, "m n"]:
        """The mean fraction of each parent that is absorbed, of the samples a child fires in; NaN where none did."""
        return self.fraction / self.with_child

    def rate(self) -> Float[Tensor, "m"]:
        """The mean over children of how often each absorbs."""
        return self.by_child().nanmean(-1)

    def mean_fraction(self) -> Float[Tensor, "m"]:
        """The mean over parents of the fraction absorbed."""
        return self.by_parent().nanmean(-1)


def count_absorption(
    families: Families, true: Int[Tensor, "b k"], strengths: Float[Tensor, "b k"], values: Float[Tensor, "m b k"]
) -> AbsorptionCounts:
    """Counts from lists of true features, how strongly each fires (0: not at all) and what its match's value is."""
    strengths, values = strengths.double(), values.double()
    fired = strengths != 0
    below = (families.parents[true][:, :, None] == true[:, None, :]) & fired[:, :, None] & fired[:, None, :]
    carried, aligned = values * families.carried[:, true], families.aligned[:, true]
    absorbed = _absorbed(below, strengths, values, carried, aligned)
    helping = torch.where(aligned >= FRACTION_COSINE, carried.clamp_min(0), 0)
    taken = (below.mT * helping[:, :, None, :]).topk(min(ABSORBERS, true.shape[1]), -1).values.sum(-1)
    fraction = _fraction(taken, values * families.own[:, true], strengths) * below.any(1)
    tally = torch.zeros_like(families.own)

    def total(what: Tensor) -> Tensor:
        return tally.scatter_add(1, true.flatten().expand(len(tally), -1), what.double().flatten(1))

    one = torch.ones_like(values)
    child, parent = total(one * below.any(2)), total(one * below.any(1))
    return AbsorptionCounts(child.long(), total(absorbed).long(), parent.long(), total(fraction))


def _absorbed(
    below: Bool[Tensor, "b k k"],
    strengths: Float[Tensor, "b k"],
    values: Float[Tensor, "m b k"],
    carried: Float[Tensor, "m b k"],
    aligned: Float[Tensor, "m b k"],
) -> Bool[Tensor, "m b k"]:
    """Which slots hold a child that has absorbed its parent."""
    silent = ((values.abs() > SILENT)[:, :, None, :] & below).any(-1).logical_not()
    strength = (strengths[:, None, :] * below).sum(-1)
    enough = (carried >= SHARE * strength) & (aligned >= FULL_COSINE) & (values > SILENT)
    return below.any(-1) & silent & enough


def _fraction(
    taken: Float[Tensor, "m b k"], kept: Float[Tensor, "m b k"], whole: Float[Tensor, "b k"]
) -> Float[Tensor, "m b k"]:
    """The share that absorbers write of what they and the main feature write, by SAEBench's rules."""
    missing = torch.minimum(taken, whole - kept)
    share = torch.where(kept <= 0, 1, missing / (missing + kept))
    return torch.where((kept >= whole) | (taken < SHARE * whole), 0, share)


LEAST_GAIN, MOST_SPLIT, L1_PENALTY, L1_STEPS = 0.03, 10, 0.01, 300


def rank_positive(rows: sparse.csr_array, known: Bool[np.ndarray, "b c"]) -> Int[np.ndarray, "c top"]:
    """For each class the features of largest weight in an L1 probe; after those with none, by difference of means."""
    weights, means = l1_probe(rows, known), rows.T @ _balance(known, 2 * known - 1)
    order = np.lexsort((-means, -weights), axis=0)
    return order[:MOST_SPLIT].T


def l1_probe(rows: sparse.csr_array, known: Bool[np.ndarray, "b c"], steps: int = L1_STEPS) -> Float[np.ndarray, "f c"]:
    """Weights that minimise balanced mean log loss + .01 |w|₁, all classes at once (accelerated proximal steps)."""
    length = np.asarray((rows**2).sum(1)) + 1
    step = 4 / _balance(known, length[:, None]).sum(0)  # the curvature is at most ¼ of the mean |(x, 1)|²
    weights, bias = np.zeros_like(rows.T @ known.astype(float)), np.zeros(known.shape[1])
    ahead, bias_ahead, pace = weights, bias, 1.0
    for _ in range(steps):
        error = _balance(known, 1 / (1 + np.exp(-(rows @ ahead + bias_ahead))) - known)
        moved = ahead - step * (rows.T @ error)
        moved = np.sign(moved) * np.maximum(np.abs(moved) - step * L1_PENALTY, 0)
        bias_moved = bias_ahead - step * error.sum(0)
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        push, pace = (pace - 1) / faster, faster
        ahead, bias_ahead = moved + push * (moved - weights), bias_moved + push * (bias_moved - bias)
        weights, bias = moved, bias_moved
    return weights


def split_features(columns: Float[np.ndarray, "b top"], known: Bool[np.ndarray, "b"]) -> int:
    """How many of these features, in their order, mean the class: until the next no longer adds enough to the F1."""
    best = 0.0
    for k in range(1, columns.shape[1] + 1):
        fitted = fit_logistic(columns[:, :k], known, balanced=True)
        score = f1(np.asarray(fitted.predict(columns[:, :k])), known)
        if k > 1 and score - best <= LEAST_GAIN:
            return k - 1
        best = score
    return columns.shape[1]


def _balance(known: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Each class's errors, weighted so that its own samples and the others weigh one half each."""
    share = known.mean(0)
    return errors * np.where(known, 0.5 / share, 0.5 / (1 - share)) / len(known)


def f1(said: Bool[np.ndarray, "b"], known: Bool[np.ndarray, "b"]) -> float:
    """Of the samples said and those known to be of the class; 0 where there is neither."""
    return float(2 * (said & known).sum() / max(int(said.sum() + known.sum()), 1))


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
    """Of one letter: how well a probe tells it, on how many words, by which features, and what was absorbed."""

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
        fraction[word] = _word_fraction(absorbed, float(written[ours].sum()), float(projection[word]))
    return full, fraction


def _is_full(values: np.ndarray, written: np.ndarray, cosines: np.ndarray, ours: np.ndarray, whole: float) -> bool:
    if whole <= 0 or written.size == 0 or (np.abs(values[ours]) >= SILENT).any():
        return False
    top = int(written.argmax())
    return bool(cosines[top] >= FULL_COSINE and written[top] >= SHARE * whole)


def _word_fraction(absorbed: float, kept: float, whole: float) -> float:
    if kept >= whole or whole <= 0 or absorbed < SHARE * whole:
        return 0.0
    missing = min(absorbed, whole - kept)
    return 1.0 if kept <= 0 else missing / (missing + kept)
