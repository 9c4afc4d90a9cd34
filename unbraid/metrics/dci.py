"""Whether a feature tells one factor, a factor is told by one feature, and how well: DCI (Eastwood & Williams 2018).

R[f, k] = Σ over the values of factor k of |weight of feature f| in an L1 logistic regression, that value against the
          others weighing the same, on features scaled to standard deviation 1:   mean log loss + .01 |w|₁
D = Σ_f ρ_f (1 - H(R[f, :] / Σ_k R[f, k]) / log factors),   ρ_f = Σ_k R[f, k] / Σ R    a factor a feature: 1; all: 0
C = mean over factors of 1 - H(R[:, k] / Σ_f R[f, k]) / log live                       a feature a factor: 1; all: 0
I = mean over factors of the balanced accuracy of argmax over values, on rows not fitted on       chance: 1 / values

Live features are those that change on the training rows. Dead ones have no importance and no vote in D. A factor with
fewer than two values on either side is left out of all three. With one factor left D is NaN, with one live feature C,
with no factor all. Where nothing is told R = 0, and D and C are 0.

Published, factors are numbers told by regression, with the penalty chosen on a third part of the rows; importance is
not summed over values. Here a factor of v values with a feature for each has C = 1 - log v / log live, and not 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import entr

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.prediction import balanced_accuracy, scaled, sides, size, spread

PENALTY = 0.01
BIAS = 100
"""liblinear penalises the bias as if a weight; of a constant feature as large as this it takes nearly nothing."""


@dataclass(frozen=True)
class Dci:
    """The three scores, and the importance of each feature `f` for each factor `k`, NaN for a factor left out."""

    disentanglement: float
    completeness: float
    informativeness: float
    importance: Float[np.ndarray, "f k"]


def dci(
    codes: sparse.csr_array,
    factors: Mapping[str, Int[np.ndarray, "n"]],
    train: Bool[np.ndarray, "n"],
    penalty: float = PENALTY,
) -> Dci:
    """From rows with the values of factors (below 0 where there is none); predictors are fitted on the train rows."""
    by = spread(codes[train])
    rows = scaled(codes, by)
    told = [_tell(rows, values, train, penalty) for values in factors.values()]
    table = np.stack([weights for weights, _ in told], 1) if told else np.empty((len(by), 0))
    right = [accuracy for _, accuracy in told if not np.isnan(accuracy)]
    judged = table[:, ~np.isnan(table).any(0)]
    return Dci(
        disentanglement(judged),
        completeness(judged, int((by > 0).sum())),
        float(np.mean(right)) if right else np.nan,
        table,
    )


def disentanglement(importance: Float[np.ndarray, "f k"]) -> float:
    factors, total = importance.shape[1], importance.sum()
    if factors < 2:
        return np.nan
    pure = 1 - entr(_shares(importance.T)).sum(0) / np.log(factors)
    return float((pure * importance.sum(1)).sum() / total) if total > 0 else 0.0


def completeness(importance: Float[np.ndarray, "f k"], live: int) -> float:
    if live < 2 or importance.shape[1] == 0:
        return np.nan
    whole = 1 - entr(_shares(importance)).sum(0) / np.log(live)
    return float(np.where(importance.sum(0) > 0, whole, 0).mean())


def fit_l1(
    rows: sparse.csr_array, known: Bool[np.ndarray, "n c"], penalty: float = PENALTY
) -> tuple[Float[np.ndarray, "f c"], Float[np.ndarray, "c"]]:
    """Weights and bias of each class: the optimum of `splitting.l1_probe`, by liblinear, which gets there sooner."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=1 / (penalty * len(known)),
        l1_ratio=1,
        solver="liblinear",
        class_weight="balanced",
        intercept_scaling=BIAS,
        max_iter=1000,
        random_state=0,  # the order in which it visits features is drawn
    )
    fits = [(fitted.coef_[0], fitted.intercept_[0]) for fitted in (model.fit(rows, one) for one in known.T)]
    return np.stack([weights for weights, _ in fits], 1), np.array([bias for _, bias in fits])


def _tell(
    rows: sparse.csr_array, values: np.ndarray, train: np.ndarray, penalty: float
) -> tuple[Float[np.ndarray, "f"], float]:
    """What each feature weighs in telling a factor, and how often it is told right; NaN if it cannot be asked."""
    if (both := sides(values, train)) is None:
        return np.full(size(rows)[1], np.nan), np.nan
    fit, asked = both
    classes = np.unique(values[fit])
    once = classes if len(classes) > 2 else classes[1:]
    weights, bias = fit_l1(rows[fit], values[fit][:, None] == once, penalty)
    if len(classes) == 2:  # either against the other is the same question: asked once, counted twice
        weights, bias = np.hstack([-weights, weights]), np.hstack([-bias, bias])
    said = classes[(rows[asked] @ weights + bias).argmax(1)]
    return np.abs(weights).sum(1), balanced_accuracy(said, values[asked])


def _shares(importance: np.ndarray) -> np.ndarray:
    """Of the sum over the first axis; all 0 where that is."""
    total = importance.sum(0)
    return np.divide(importance, total, out=np.zeros_like(importance), where=total > 0)
