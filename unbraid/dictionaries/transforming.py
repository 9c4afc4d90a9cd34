"""What scikit-learn asks of anything that turns rows into codes: how many columns come out, named, and of what type."""

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags


class CodesTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The base of transformers whose fit leaves unit directions in `components_`."""

    components_: NDArray[np.float32]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float32"]  # codes are float32 whatever comes in
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]
