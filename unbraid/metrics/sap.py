"""Whether one feature tells a factor far better than any other: the gap of separated attributes (Kumar et al. 2018).

SAP = mean over factors of (best - second best) balanced accuracy of one feature alone, by a linear SVM

The SVM is disentanglement_lib's (C = .01, classes weigh the same), fitted on the training rows, asked on the others.
Unlike there, a feature is scaled to standard deviation 1, so that its unit does not matter; the accuracy is balanced,
so that a rare value counts as much as a common one; and only the few features with the largest mutual information with
the factor on the training rows are tried. That is the same wherever the two best are among them, which is likely and
no law: a feature may say much of a factor and no line through it tell so. Where fewer than two tell it, the second is
the best of a few accidents and not of all: the gap is a little larger.

A factor with fewer than two values on either side is left out; NaN of no factor, or of fewer than two features.
"""

from collections.abc import Mapping

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.information import mutual_information
from unbraid.metrics.prediction import balanced_accuracy, scaled, sides, size, spread

TRIED, C = 5, 0.01


def sap(
    codes: sparse.csr_array,
    factors: Mapping[str, Int[np.ndarray, "n"]],
    train: Bool[np.ndarray, "n"],
    tried: int = TRIED,
) -> float:
    """From rows with the values of factors, below 0 where there is none; at least two features are tried."""
    told = {name: (values, both) for name, values in factors.items() if (both := sides(values, train)) is not None}
    if size(codes)[1] < 2 or not told:
        return np.nan
    said = mutual_information(codes[train], {name: values[train] for name, (values, _) in told.items()})
    best = np.argsort(-said, axis=0, kind="stable")[: max(tried, 2)]
    columns = sparse.csc_array(scaled(codes, spread(codes[train])))
    gaps = [
        _gap([alone(columns[:, [feature]].toarray(), values, *both) for feature in of_factor])
        for of_factor, (values, both) in zip(best.T, told.values(), strict=True)
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

    fitted = LinearSVC(C=C, class_weight="balanced").fit(column[fit], values[fit])
    return balanced_accuracy(np.asarray(fitted.predict(column[asked])), values[asked])


def _gap(accuracies: list[float]) -> float:
    second, first = sorted(accuracies)[-2:]
    return first - second
