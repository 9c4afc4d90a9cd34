"""Disentanglement of a code: DCI, MIG, SAP and modularity, each with its chance.

chance = the mean of the same score over draws in which the factors' rows are permuted, all factors by one permutation:
         how a factor hangs together with others stays, how it hangs together with the code goes

Modularity is over the features that say more than by accident. Shuffled, hardly any does: there it is over all that say
anything, which is what a feature scores that knows nothing.

**DCI** (Eastwood & Williams 2018): does a feature predict one factor, does one feature predict a factor, how well?

R[f, k] = Σ over the values of factor k of |weight of feature f| in an L1 logistic regression, that value against the
          others weighing the same, on features scaled to standard deviation 1:   mean log loss + .01 |w|₁
D = Σ_f ρ_f (1 - H(R[f, :] / Σ_k R[f, k]) / log factors),   ρ_f = Σ_k R[f, k] / Σ R    a factor a feature: 1; all: 0
C = mean over factors of 1 - H(R[:, k] / Σ_f R[f, k]) / log live                       a feature a factor: 1; all: 0
I = mean over factors of the balanced accuracy of argmax over values, on rows not fitted on       chance: 1 / values

Live features are those that change on the training rows. Dead ones have no importance and no vote in D. A factor with
fewer than two values on either side is left out of all three. With one factor left D is NaN, with one live feature C,
with no factor all. Where nothing is predicted R = 0, and D and C are 0.

Published, factors are numbers, predicted by regression, the penalty chosen on a third part of the rows; importance is
not summed over values. Here a factor of v values with a feature for each has C = 1 - log v / log live, and not 1.

**MIG and modularity**: how much each feature says of each factor.

I[f, k]    = mutual information (nats) of feature f, in bins, with the values of factor k, over the rows that have one
MIG        = mean over factors of (largest I[:, k] - second largest) / H(k)                         (Chen et al. 2018)
modularity = mean over features of 1 - Σ_{k not best} I[f, k]² / (I[f, best]² (factors - 1))  (Ridgeway & Mozer 2018)

Bins: not to fire is a bin of its own; what fires is in bins of equal width, from the feature's least to its largest
value that is not 0. disentanglement_lib cuts the whole range, zeros and all: there faint firing falls into one bin with
silence (on a code that is never 0 both are the same). All is counted at the cost of what fired.

Modularity is over the features that say enough of some factor. The published mean is over all, those that say exactly
nothing counting 0: it falls with every dead feature, and in an overcomplete code most others say only what a sample
pretends, which makes it .6 to .7 whatever the code, and the same for shuffled factors. `accident` bounds what they say.

A factor with one value has H = 0: its column is NaN, and it is left out. MIG of fewer than two features, modularity of
fewer than two factors or of no feature that says enough, and either of no factor are NaN.

**SAP** (Kumar et al. 2018): does one feature tell a factor far better than any other?

SAP = mean over factors of (best - second best) balanced accuracy of one feature alone, by a linear SVM

The SVM is disentanglement_lib's (C = .01, classes weigh the same), fitted on the training rows, asked on the others.
Unlike there, a feature is scaled to standard deviation 1, so that its unit does not matter; the accuracy is balanced,
so that a rare value counts as much as a common one; and only the few features with the largest mutual information with
the factor on the training rows are tried. That is the same wherever the two best are among them, which is likely and
no law: a feature may say much of a factor and no line through it tell so. Where fewer than two tell it, the second is
the best of a few accidents and not of all: the gap is a little larger.

A factor with fewer than two values on either side is left out; NaN of no factor, or of fewer than two features.

balanced accuracy = mean over the values asked of the share of their rows that are predicted       chance: 1 / values
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import entr, xlogy

from unbraid.axes import Bool, Float, Int

ROUNDING = 1e-12
"""A variance below this share of the mean square, or so little information in nats, is what rounding leaves of none."""


def size(codes: sparse.csr_array) -> tuple[int, int]:
    """Rows and features."""
    rows, features = codes.shape  # pyright: ignore[reportGeneralTypeIssues] (scipy's own hints allow no shape)
    return int(rows), int(features)


def sides(
    values: Int[np.ndarray, "n"], train: Bool[np.ndarray, "n"]
) -> tuple[Int[np.ndarray, "a"], Int[np.ndarray, "t"]] | None:
    """The rows to fit on and those to ask, of those with a value (not below 0); None if either has fewer than two."""
    fit, asked = (np.flatnonzero((values >= 0) & side) for side in (train, ~train))
    return (fit, asked) if min(len(np.unique(values[side])) for side in (fit, asked)) > 1 else None


def spread(codes: sparse.csr_array) -> Float[np.ndarray, "f"]:
    """The standard deviation of each feature; exactly 0 where it never changes."""
    square = np.asarray((codes**2).mean(0))
    variance = square - np.asarray(codes.mean(0)) ** 2
    return np.sqrt(np.where(variance > ROUNDING * square, variance, 0))


def scaled(codes: sparse.csr_array, by: Float[np.ndarray, "f"]) -> sparse.csr_array:
    """Each feature divided by a number of its own; by 0 it is silenced. Zeros stay zeros: nothing is centred."""
    factor = np.divide(1, by, out=np.zeros_like(by), where=by > 0)
    return sparse.csr_array((codes.data * factor[codes.indices], codes.indices, codes.indptr), shape=codes.shape)


def balanced_accuracy(said: Int[np.ndarray, "t"], values: Int[np.ndarray, "t"]) -> float:
    """A value that no training row had cannot be predicted, and counts as wrong."""
    return float(np.mean([(said[values == one] == one).mean() for one in np.unique(values)]))


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
    predicted = [_predict_factor(rows, values, train, penalty) for values in factors.values()]
    table = np.stack([weights for weights, _ in predicted], 1) if predicted else np.empty((len(by), 0))
    right = [accuracy for _, accuracy in predicted if not np.isnan(accuracy)]
    judged = table[:, ~np.isnan(table).any(0)]
    return Dci(
        dci_disentanglement(judged),
        dci_completeness(judged, int((by > 0).sum())),
        float(np.mean(right)) if right else np.nan,
        table,
    )


def dci_disentanglement(importance: Float[np.ndarray, "f k"]) -> float:
    """From how much each of f features weighs for each of k factors; NaN of fewer than two factors."""
    factors, total = importance.shape[1], importance.sum()
    if factors < 2:
        return np.nan
    pure = 1 - entr(_shares(importance.T)).sum(0) / np.log(factors)
    return float((pure * importance.sum(1)).sum() / total) if total > 0 else 0.0


def dci_completeness(importance: Float[np.ndarray, "f k"], live: int) -> float:
    """The same table by factor, of so many live features; NaN of fewer than two."""
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


def _predict_factor(
    rows: sparse.csr_array, values: np.ndarray, train: np.ndarray, penalty: float
) -> tuple[Float[np.ndarray, "f"], float]:
    """What each feature weighs in predicting a factor, and how often that is right; NaN if it cannot be asked."""
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


BINS, RARE = 20, 1e-6


def mutual_information(
    codes: sparse.csr_array, factors: Mapping[str, Int[np.ndarray, "n"]], bins: int = BINS
) -> Float[np.ndarray, "f k"]:
    """In nats; rows where a factor is below 0 are left out for it, after the bins are made from all."""
    width = size(codes)[1]
    row, feature, place = _binned(codes, bins)
    table = np.full((width, len(factors)), np.nan)
    for k, values in enumerate(factors.values()):
        of_value = np.bincount(values[values >= 0])
        if (of_value > 0).sum() > 1:
            known = values[row] >= 0
            which = (feature[known] * bins + place[known]) * len(of_value) + values[row[known]]
            counts = np.bincount(which, minlength=width * bins * len(of_value))
            table[:, k] = _information(counts.reshape(width, bins, len(of_value)), of_value)
    return table


def entropies(factors: Mapping[str, Int[np.ndarray, "n"]]) -> Float[np.ndarray, "k"]:
    """Of the values of each factor, in nats, over the rows where it has one; 0 if it has none."""
    from scipy.stats import entropy

    counts = [np.bincount(values[values >= 0], minlength=1) for values in factors.values()]
    return np.array([entropy(count) if count.sum() else 0.0 for count in counts], dtype=float)


def mig(information: Float[np.ndarray, "f k"], entropy: Float[np.ndarray, "k"]) -> float:
    """From the tables of the two functions above."""
    usable = ~np.isnan(information).any(0) & (entropy > 0)
    if information.shape[0] < 2 or not usable.any():
        return np.nan
    second, first = np.sort(information[:, usable], axis=0)[-2:]
    return float(((first - second) / entropy[usable]).mean())


def accident(factors: Mapping[str, Int[np.ndarray, "n"]], bins: int = BINS) -> Float[np.ndarray, "k"]:
    """What a feature that fills all bins and knows nothing says once in a million: χ² / 2 rows (a G-test)."""
    from scipy.stats import chi2

    counts = [np.unique(values[values >= 0], return_counts=True)[1] for values in factors.values()]
    return np.array(
        [chi2.isf(RARE, bins * (len(count) - 1)) / (2 * count.sum()) if len(count) > 1 else 0.0 for count in counts]
    )


def modularity(information: Float[np.ndarray, "f k"], least: Float[np.ndarray, "k"]) -> float:
    """Over the features with more than the least information of some factor."""
    known = ~np.isnan(information).any(0)
    of_factors = information[:, known]
    if of_factors.shape[1] < 2:
        return np.nan
    informative = of_factors[(of_factors > least[known]).any(1)]
    square = informative**2
    best = square.max(1)
    pure = 1 - (square.sum(1) - best) / (best * (of_factors.shape[1] - 1))
    return float(pure.mean()) if len(pure) else np.nan


def _binned(codes: sparse.csr_array, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, feature and bin of all that fired."""
    rows, width = size(codes)
    fired = codes.data != 0
    row = np.repeat(np.arange(rows), np.diff(codes.indptr))[fired]
    feature, value = codes.indices[fired].astype(np.int64), codes.data[fired].astype(np.float64)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    np.minimum.at(low, feature, value)
    np.maximum.at(high, feature, value)
    range_of = (high - low)[feature]
    share = np.divide(value - low[feature], range_of, out=np.zeros_like(value), where=range_of > 0)
    return row, feature, np.minimum((share * bins).astype(np.int64), bins - 1)


def _information(fired: Int[np.ndarray, "f bins c"], of_value: Int[np.ndarray, "c"]) -> Float[np.ndarray, "f"]:
    """n I = Σ n_bc log n_bc - Σ n_b log n_b - Σ n_c log n_c + n log n, b also the bin of silence."""
    silent = of_value - fired.sum(1)
    both = _n_log_n(fired).sum((1, 2)) + _n_log_n(silent).sum(1)
    bin_alone = _n_log_n(fired.sum(2)).sum(1) + _n_log_n(silent.sum(1))
    rows = of_value.sum()
    mean = (both - bin_alone - _n_log_n(of_value).sum() + _n_log_n(rows)) / rows
    return np.where(mean > ROUNDING, mean, 0)


def _n_log_n(count: np.ndarray | np.integer) -> np.ndarray:
    return np.asarray(xlogy(count, count))


TRIED, SVM_C = 5, 0.01


def sap(
    codes: sparse.csr_array,
    factors: Mapping[str, Int[np.ndarray, "n"]],
    train: Bool[np.ndarray, "n"],
    tried: int = TRIED,
) -> float:
    """From rows with the values of factors, below 0 where there is none; at least two features are tried."""
    usable = {name: (values, both) for name, values in factors.items() if (both := sides(values, train)) is not None}
    if size(codes)[1] < 2 or not usable:
        return np.nan
    said = mutual_information(codes[train], {name: values[train] for name, (values, _) in usable.items()})
    best = np.argsort(-said, axis=0, kind="stable")[: max(tried, 2)]
    columns = sparse.csc_array(scaled(codes, spread(codes[train])))
    gaps = [
        _gap([alone(columns[:, [feature]].toarray(), values, *both) for feature in of_factor])
        for of_factor, (values, both) in zip(best.T, usable.values(), strict=True)
    ]
    return float(np.mean(gaps))


def alone(
    column: Float[np.ndarray, "n 1"],
    values: Int[np.ndarray, "n"],
    fit: Int[np.ndarray, "a"],
    asked: Int[np.ndarray, "t"],
) -> float:
    """The balanced accuracy with which one feature tells a factor on the rows asked."""
    from sklearn.svm import LinearSVC

    fitted = LinearSVC(C=SVM_C, class_weight="balanced").fit(column[fit], values[fit])
    return balanced_accuracy(np.asarray(fitted.predict(column[asked])), values[asked])


def _gap(accuracies: list[float]) -> float:
    second, first = sorted(accuracies)[-2:]
    return first - second


Factors = Mapping[str, Int[np.ndarray, "n"]]
"""Of each row the value of each factor, from 0; below 0 where it has none, and the row is left out for this factor."""


@dataclass(frozen=True)
class Disentanglement:
    """Each score by its name, and its chance by the same name."""

    scores: dict[str, float]
    chance: dict[str, float]


def disentanglement(
    codes: sparse.csr_array,
    factors: Factors,
    train: Bool[np.ndarray, "n"],
    rng: np.random.Generator,
    draws: int = 1,
) -> Disentanglement:
    """Predictors are fitted on the train rows and asked on the others; a chance that no draw has is NaN."""
    scores = scores_of(codes, factors, train, accident(factors))
    orders = [rng.permutation(len(train)) for _ in range(draws)]
    drawn = [scores_of(codes, _shuffled(factors, order), train, np.zeros(len(factors))) for order in orders]
    return Disentanglement(scores, {name: _mean([each[name] for each in drawn]) for name in scores})


def scores_of(
    codes: sparse.csr_array, factors: Factors, train: Bool[np.ndarray, "n"], least: Float[np.ndarray, "k"]
) -> dict[str, float]:
    """Without chance; `least` is the information from which a feature counts for modularity. NaN where not defined."""
    predicted = dci(codes, factors, train)
    information = mutual_information(codes, factors)
    return {
        "dci_disentanglement": predicted.disentanglement,
        "dci_completeness": predicted.completeness,
        "dci_informativeness": predicted.informativeness,
        "mig": mig(information, entropies(factors)),
        "sap": sap(codes, factors, train),
        "modularity": modularity(information, least),
    }


def _shuffled(factors: Factors, order: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[order] for name, values in factors.items()}


def _mean(values: list[float]) -> float:
    """Of the draws in which there is a score."""
    known = [value for value in values if not np.isnan(value)]
    return sum(known) / len(known) if known else np.nan
