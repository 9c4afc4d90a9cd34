"""How well a probe tells a class: sparse probing of texts as in SAEBench, and a linear probe for planted concepts.

**Sparse probing.** For each class, against as many texts of the others:
    the k features of largest |mean over the class - mean over the others|, on the training texts
    accuracy on the test texts of a logistic regression (C = 1) on these k, and on all features (`full`)

averaged over classes, then over data sets. Balance makes chance ½; nothing is chosen by looking at test texts.
Two classes are one question, asked once. Of more, each is also among the others of the rest: the error takes them as
independent, though they share texts.

**Linear probe**, the ceiling of φ: for every concept, from raw activations,
    w, b minimise  Σ over rows of log(1 + e^(-y (w·x + b)))  +  ½ |w|²,   x standardised, y = ±1
by Newton's steps; its score w·x + b is then cut where φ is largest. All on the rows to fit on; φ is measured on the
others (see `matching.association`).
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unbraid.metrics.matching.association import Best, associate, best


def fit_logistic(
    rows: np.ndarray | sparse.csr_array, known: Bool[np.ndarray, "b"], balanced: bool = False
) -> "LogisticRegression":
    """Fitted; if balanced, a class and the others weigh the same. That it has not converged is not said."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # SAEBench stops at 1000 steps too
        return LogisticRegression(class_weight="balanced" if balanced else None, max_iter=1000).fit(rows, known)


KS = (1, 2, 5, 10, 20, 50)
FULL = "full"
CHANCE = 0.5
FEWEST_TEXTS = 10
"""A class with fewer training or test texts, or with fewer texts of others, is not probed."""

Rows = np.ndarray | sparse.csr_array
"""One row a text: raw activations dense, codes sparse."""


@dataclass(frozen=True)
class Labelled:
    """Pooled texts `b` with their classes, and which of them are for training."""

    rows: Rows
    classes: Int[np.ndarray, "b"]
    train: Bool[np.ndarray, "b"]


@dataclass(frozen=True)
class Accuracy:
    """A share of right answers, and its standard error from how many texts were asked."""

    value: float
    error: float

    @classmethod
    def of(cls, right: Bool[np.ndarray, "b"]) -> "Accuracy":
        """From which of b answers are right."""
        share = float(right.mean())
        return cls(share, float(np.sqrt(share * (1 - share) / len(right))))

    @classmethod
    def mean(cls, parts: Sequence["Accuracy"]) -> "Accuracy":
        """The error is that of parts that err on their own; NaN of none."""
        if not parts:
            return cls(float("nan"), float("nan"))
        total = float(np.sqrt(sum(part.error**2 for part in parts)))
        return cls(sum(part.value for part in parts) / len(parts), total / len(parts))


Accuracies = dict[str, Accuracy]
"""By the number of features, as a word: "1", "2", …, "full"."""


def pool(
    features: Int[np.ndarray, "b k"],
    values: Float[np.ndarray, "b k"],
    text: Int[np.ndarray, "b"],
    texts: int,
    width: int,
) -> sparse.csr_array:
    """The mean code of each text over the tokens given, from lists of what fired; a text without tokens is zeros."""
    fired = values != 0
    which = np.broadcast_to(text[:, None], values.shape)[fired]
    total = sparse.coo_array((values[fired].astype(np.float64), (which, features[fired])), shape=(texts, width))
    tokens = np.bincount(text, minlength=texts)
    return sparse.csr_array(sparse.diags_array(1 / np.maximum(tokens, 1)) @ total.tocsr())


def probe(data: Labelled, rng: np.random.Generator, ks: Sequence[int] = KS) -> Accuracies:
    """The mean accuracy over classes, for each k and for all features; which texts stand against a class is drawn."""
    classes = np.unique(data.classes).tolist()
    once = classes if len(classes) > 2 else classes[:1]  # of two, either against the other is the same question
    parts = [probe_class(data, one, rng, ks) for one in once]
    return average([part for part in parts if part])


def probe_class(data: Labelled, one: int, rng: np.random.Generator, ks: Sequence[int]) -> Accuracies:
    """One class against as many of the others; empty where there are too few."""
    train, test = (_balanced(data.classes == one, side, rng) for side in (data.train, ~data.train))
    if min(len(train), len(test)) < 2 * FEWEST_TEXTS:
        return {}
    known, asked = data.classes[train] == one, data.classes[test] == one
    ranked = rank(data.rows[train], known)
    chosen = {str(k): ranked[:k] for k in ks if k <= len(ranked)}
    found = {name: _right(data.rows[:, columns], train, test, known, asked) for name, columns in chosen.items()}
    return {**found, FULL: _right(data.rows, train, test, known, asked)}


def rank(rows: Rows, positive: Bool[np.ndarray, "b"]) -> Int[np.ndarray, "f"]:
    """Features by the distance of their means, the largest first, and of equals the first."""
    apart = np.abs(_mean(rows[positive]) - _mean(rows[~positive]))
    return np.argsort(-apart, kind="stable")


def average(parts: Sequence[Mapping[str, Accuracy]]) -> Accuracies:
    """Over classes or over data sets, of what each of them has."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: Accuracy.mean([part[name] for part in parts if name in part]) for name in names}


def _balanced(positive: np.ndarray, side: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many texts of a class as of all the others, of those on this side; drawn where there are more."""
    ours, others = np.flatnonzero(positive & side), np.flatnonzero(~positive & side)
    size = min(len(ours), len(others))
    drawn = [rng.permutation(each)[:size] for each in (ours, others)]
    return np.sort(np.concatenate(drawn))


def _mean(rows: Rows) -> np.ndarray:
    return np.asarray(rows.mean(0)).ravel()


def _right(rows: Rows, train: np.ndarray, test: np.ndarray, known: np.ndarray, asked: np.ndarray) -> Accuracy:
    said = np.asarray(fit_logistic(rows[train], known).predict(rows[test]))
    return Accuracy.of(said == asked)


NEWTON_STEPS, CLOSE = 30, 1e-4


def probe_concepts(x: Float[np.ndarray, "n d"], concepts: Bool[np.ndarray, "n c"], fit: Bool[np.ndarray, "n"]) -> Best:
    """φ of each concept's own probe, numbered as the concept is; NaN for a concept that is not judged."""
    rows = standardise(x.astype(np.float64), fit)
    found = np.full(concepts.shape[1], np.nan)
    for number in range(concepts.shape[1]):
        concept = concepts[:, [number]]
        scores = rows @ fit_probe(rows[fit], concept[fit, 0])
        found[number] = best(associate(sparse.csr_array(scores[:, None]), concept, fit)).phi[0]
    return Best(np.arange(concepts.shape[1]), found)


def standardise(x: Float[np.ndarray, "n d"], fit: Bool[np.ndarray, "n"]) -> Float[np.ndarray, "n e"]:
    """To mean 0 and variance 1 on the rows fitted, constant columns to 0; and a last column of ones."""
    middle, spread = x[fit].mean(0), x[fit].std(0)
    scaled = (x - middle) / np.where(spread > 0, spread, 1)
    return np.column_stack([scaled, np.ones(len(x))])


def fit_probe(rows: Float[np.ndarray, "b e"], known: Bool[np.ndarray, "b"]) -> Float[np.ndarray, "e"]:
    """The weights, the last one the bias; Newton's step is halved until it helps."""
    penalty = np.append(np.ones(rows.shape[1] - 1), 1e-6)  # next to none on the bias: enough where one class is empty
    weights, signs = np.zeros(rows.shape[1]), np.where(known, 1.0, -1.0)

    def loss(at: np.ndarray) -> float:
        return float(np.logaddexp(0, -signs * (rows @ at)).sum() + penalty @ at**2 / 2)

    now = loss(weights)
    for _ in range(NEWTON_STEPS):
        chance = 0.5 + 0.5 * np.tanh(rows @ weights / 2)
        slope = rows.T @ (chance - known) + penalty * weights
        curve = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        while (then := loss(weights - step)) > now and np.abs(step).max() > CLOSE:
            step = step / 2
        weights, now = weights - step, then
        if np.abs(step).max() <= CLOSE:
            break
    return weights
