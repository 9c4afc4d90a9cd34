"""The logistic regression of SAEBench's probes: C = 1, at most a thousand steps."""

import warnings
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from unbraid.axes import Bool

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression


def fit_logistic(
    rows: np.ndarray | sparse.csr_array, known: Bool[np.ndarray, "b"], balanced: bool = False
) -> "LogisticRegression":
    """Fitted; if balanced, a class and the others weigh the same. That it has not converged is not said."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # SAEBench stops at 1000 steps too
        return LogisticRegression(class_weight="balanced" if balanced else None, max_iter=1000).fit(rows, known)
