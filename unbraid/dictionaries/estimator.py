"""Dictionaries and baselines as scikit-learn transformers, for its pipelines and for anyone with an array.

`transform` gives codes, `components_` unit directions.
"""

from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from unbraid.codes import Codes
from unbraid.config import check
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.baselines import Baseline, Pca
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import train
from unbraid.dictionaries.training.step import State
from unbraid.members import stack_configs
from unbraid.randomness import stream

WITH_K = ("topk", "batchtopk")
PENALISED = ("relu", "jumprelu", "gated")


class CodesTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What scikit-learn asks of a transformer from rows to codes: how many columns come out, named, of what type."""

    components_: NDArray[np.float32]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float32"]  # codes are float32 whatever comes in
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]


class SparseAutoencoder(CodesTransformer):
    """A sparse autoencoder with scikit-learn's interface: `fit`, `transform`, `inverse_transform`.

    Parameters
    ----------
    n_components : int, default 64
        Number of learned features.
    activation : {"relu", "topk", "batchtopk", "jumprelu", "gated", "variational"}, default "relu"
        The rule by which features fire.
    k : int, default 8
        Features that fire in a sample, for "topk" and "batchtopk".
    sparsity : float, default 0.1
        Weight of the sparsity cost for "relu", "jumprelu" and "gated", against the squared error summed over
        dimensions; higher is sparser. "variational" is made sparse by its prior.
    pre_bias : bool, default True
        Whether a learned vector, at first the mean of X, is subtracted from inputs.
    steps : int, default 1000
        Number of training steps.
    batch : int, default 256
        Rows in a step, drawn with replacement.
    learning_rate : float, default 3e-3
        Adam's learning rate.
    random_state : int, RandomState or None, default 0
        Draws the initial weights and the batches.

    Attributes
    ----------
    components_ : array, shape (n_components, n_features_in_)
        The learned directions: unit rows of the decoder.
    stack_ : Stack
        The trained dictionary, a stack of one.

    Examples
    --------
    >>> import numpy as np, unbraid as ub
    >>> X = np.random.default_rng(0).standard_normal((200, 6))
    >>> codes = ub.SparseAutoencoder(16, activation="topk", k=2, steps=20).fit_transform(X)
    >>> codes.shape, int((codes != 0).sum(1).max())
    ((200, 16), 2)
    """

    def __init__(
        self,
        n_components: int = 64,
        *,
        activation: Literal["relu", "topk", "batchtopk", "jumprelu", "gated", "variational"] = "relu",
        k: int = 8,
        sparsity: float = 0.1,
        pre_bias: bool = True,
        steps: int = 1000,
        batch: int = 256,
        learning_rate: float = 3e-3,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.activation = activation
        self.k = k
        self.sparsity = sparsity
        self.pre_bias = pre_bias
        self.steps = steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: N803, ARG002
        rows = torch.from_numpy(validate_data(self, X, dtype=np.float32, order="C"))  # pyright: ignore[reportArgumentType]
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        rule = {"kind": self.activation, "k": self.k} if self.activation in WITH_K else {"kind": self.activation}
        settings = {"d_sae": self.n_components, "activation": rule, "pre_bias": self.pre_bias}
        dictionary = check(Dictionary, settings, type(self).__name__)
        pace = {"steps": self.steps, "batch": self.batch, "learning_rate": float(self.learning_rate)}
        training = stack_configs([check(Training, pace, type(self).__name__)])
        penalised = self.activation in PENALISED
        mechanisms = {"sparsity": stack_configs([Sparsity(weight=float(self.sparsity))])} if penalised else {}
        state = State.start(dictionary, rows.shape[1], mechanisms, [seed])
        if state.stack.pre_bias is not None:
            state.stack.pre_bias.copy_(rows.mean(0))

        def inputs(position: int) -> Inputs:
            chosen = stream(seed, "rows of X", position).integers(0, len(rows), self.batch)
            return Inputs(rows[torch.from_numpy(chosen)])

        for _ in train(state, inputs, training, mechanisms):
            pass
        self.stack_ = state.stack
        self.components_ = state.stack.directions[0].numpy()
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:  # noqa: N803
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float32, order="C", reset=False)  # pyright: ignore[reportArgumentType]
        return self.stack_.encode(torch.from_numpy(rows)).to_dense()[0].numpy()

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float32]:  # noqa: N803
        check_is_fitted(self)
        codes = torch.from_numpy(np.asarray(X, dtype=np.float32))
        return self.stack_.decode(Codes.dense(codes[None]))[0].numpy()


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
