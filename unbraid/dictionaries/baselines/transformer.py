"""Any baseline as a scikit-learn transformer, for its pipelines: `transform` gives codes, `components_` directions."""

from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from unbraid.dictionaries.baselines.baseline import Baseline
from unbraid.dictionaries.baselines.factors import Pca
from unbraid.dictionaries.transforming import CodesTransformer


class BaselineTransformer(CodesTransformer):
    """Fits a baseline to the rows of X; without one, PCA."""

    def __init__(self, baseline: Baseline | None = None) -> None:
        self.baseline = baseline

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: N803, ARG002
        rows = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)  # pyright: ignore[reportArgumentType]
        self.fitted_ = (self.baseline or Pca()).fit(torch.from_numpy(rows))
        self.components_ = self.fitted_.components_
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:  # noqa: N803
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float32, reset=False)  # pyright: ignore[reportArgumentType]
        return self.fitted_.transform(rows)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float32]:  # noqa: N803
        check_is_fitted(self)
        return self.fitted_.inverse_transform(X)
