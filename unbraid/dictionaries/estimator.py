"""Dictionaries and baselines as scikit-learn transformers, for its pipelines and for anyone with an array.

`transform` gives codes, `components_` unit directions.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse, vstack
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from unbraid.activations.normalization import Normalization
from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import JsonDict, check, name_of
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.baselines import Baseline, Pca
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.mechanisms.mechanism import Mechanism, Mechanisms
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import Data, Fitting
from unbraid.dictionaries.training.step import State
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.worlds.arrays import Rows, read_rows

WITH_K = ("topk", "batchtopk")
FIXED = ("relu", "jumprelu", "gated")
"""Rules whose sparsity may be given as a fixed weight."""
STEERED = {"relu": 0.1, "jumprelu": 0.01, "gated": 0.1, "variational": 0.003}
"""Where the weight of the sparsity cost begins, for rules where it is steered; rows have a mean length of one."""
VARIATIONAL_WEIGHT = 0.001
"""Small enough that the sparsity cost, not the prior alone, decides how many features fire."""
DECAY_SHARE = 1 / 3
ROWS = 4096
"""So many rows are encoded at a time."""


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
    """A sparse autoencoder with scikit-learn's interface: `fit`, `transform`, `inverse_transform`, `score`.

    Rows are centered and scaled to a mean length of one for training, and that is folded into the weights afterwards:
    nothing that is learned depends on the scale of X. The learning rate falls to 0 over the last third of the steps.

    Parameters
    ----------
    n_components : int, default 64
        Number of learned features.
    activation : {"relu", "topk", "batchtopk", "jumprelu", "gated", "variational"}, default "relu"
        The rule by which features fire.
    target_l0 : float, default 4
        How many features should fire in a sample, on average, whatever the rule: k of "topk" and "batchtopk" (rounded;
        "topk" lets at most so many fire), while for the others the weight of the sparsity cost is steered towards it.
    k : int, optional
        The same for "topk" and "batchtopk" alone. More than `n_components` is `n_components`.
    sparsity : float, optional
        A fixed weight of the sparsity cost in place of `target_l0`, for "relu", "jumprelu" and "gated" alone, against
        the squared error of rows of mean length one; higher is sparser. What the cost counts depends on the rule.
    pre_bias : bool, default True
        Whether a learned vector, at first the mean of X, is subtracted from inputs.
    steps : int, default 1000
        Number of training steps.
    batch : int, default 256
        Rows in a step; each row comes once before any comes again.
    learning_rate : float, default 1e-2
        Adam's learning rate.
    mechanisms : sequence of Mechanism, optional
        What else is added to training, each kind at most once, as `Matryoshka`. A `Sparsity` replaces the cost that
        `target_l0` and `sparsity` describe.
    sparse_output : bool, default False
        Whether `transform` returns a `scipy.sparse` array.
    random_state : int, RandomState or None, default 0
        Draws the initial weights and the order of the rows.
    verbose : bool, default False
        Whether `fit` shows a bar in a terminal or notebook.

    Attributes
    ----------
    components_ : array, shape (n_components, n_features_in_)
        The learned directions: unit rows of the decoder.
    stack_ : Stack
        The trained dictionary, a stack of one, for X as it is; `stack_.history` is how training went.
    n_iter_ : int
        Training steps taken.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : array of str
        Their names, where X is a data frame with names.

    Examples
    --------
    >>> import numpy as np, unbraid as ub
    >>> X = np.random.default_rng(0).standard_normal((200, 6))
    >>> model = ub.SparseAutoencoder(16, activation="topk", target_l0=2, steps=20).fit(X)
    >>> codes = model.transform(X)
    >>> codes.shape, int((codes != 0).sum(1).max())
    ((200, 16), 2)
    >>> model.inverse_transform(codes).shape, model.score(X) > 0  # the share of variance explained
    ((200, 6), True)

    Sparse codes, and more data when it comes:

    >>> model.set_params(sparse_output=True).transform(X).nnz <= 2 * len(X)
    True
    >>> model.partial_fit(X).n_iter_
    21
    """

    def __init__(
        self,
        n_components: int = 64,
        *,
        activation: Literal["relu", "topk", "batchtopk", "jumprelu", "gated", "variational"] = "relu",
        target_l0: int | float = 4,
        k: int | None = None,
        sparsity: int | float | None = None,
        pre_bias: bool = True,
        steps: int = 1000,
        batch: int = 256,
        learning_rate: float = 1e-2,
        mechanisms: Any = None,
        sparse_output: bool = False,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.activation = activation
        self.target_l0 = target_l0
        self.k = k
        self.sparsity = sparsity
        self.pre_bias = pre_bias
        self.steps = steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.mechanisms = mechanisms
        self.sparse_output = sparse_output
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: N803, ARG002
        """Learn from the rows of X, from the beginning.

        Parameters
        ----------
        X : array or sparse array, shape (n, n_features_in_)
            The rows.
        y : ignored
        """
        rows = self._begin(self._rows_of(X))
        self._train(rows, self._training(self.steps, DECAY_SHARE), 0)
        return self

    def partial_fit(self, X: Any, y: object = None) -> Self:  # noqa: N803, ARG002
        """Learn from these rows too: one step for every `batch` of them, at least one, without decay.

        The first rows that are ever seen decide center and scale.

        Parameters
        ----------
        X : array or sparse array, shape (n, n_features_in_)
            The rows.
        y : ignored
        """
        first = "stack_" not in vars(self)
        array, begun = self._rows_of(X, reset=first), 0 if first else self.n_iter_
        rows = self._begin(array) if first else Rows.of(array, seed=self._seed)
        steps = max(1, -(-rows_in(array) // self.batch))
        self._train(rows, self._training(begun + steps, 0.0), begun)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The codes of rows, float32, made some thousands of rows at a time.

        Parameters
        ----------
        X : array or sparse array, shape (n, n_features_in_)
            The rows.

        Returns
        -------
        array, or `scipy.sparse` array with `sparse_output`, shape (n, n_components)
        """
        check_is_fitted(self)
        rows = self._rows_of(X, reset=False)
        if self.sparse_output:
            return vstack([self._codes(block).to_sparse(0) for block in _blocks(rows)], format="csr")
        codes = np.empty((rows_in(rows), self.components_.shape[0]), np.float32)
        for start, block in zip(range(0, len(codes), ROWS), _blocks(rows), strict=True):
            codes[start : start + ROWS] = self._codes(block).to_dense()[0].numpy()
        return codes

    def inverse_transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """The reconstructions of codes, dense or sparse.

        Parameters
        ----------
        X : array or sparse array, shape (n, n_components)
            The codes.

        Returns
        -------
        array, shape (n, n_features_in_)
        """
        check_is_fitted(self)
        codes = X if issparse(X) else np.asarray(X)
        return np.concatenate([self.stack_.decode(Codes.dense(block[None]))[0].numpy() for block in _blocks(codes)])

    def score(self, X: Any, y: object = None) -> float:  # noqa: N803, ARG002
        """The share of the variance of X that reconstructions explain: 1 is all, 0 what the mean explains.

        Parameters
        ----------
        X : array or sparse array, shape (n, n_features_in_)
            The rows.
        y : ignored
        """
        check_is_fitted(self)
        rows = self._rows_of(X, reset=False)
        mean = torch.zeros(rows.shape[1], dtype=torch.float64)
        for block in _blocks(rows):
            mean += block.double().sum(0) / rows_in(rows)
        missed = total = 0.0
        for block in _blocks(rows):
            missed += float((self.stack_.decode(self._codes(block))[0].double() - block).square().sum())
            total += float((block.double() - mean).square().sum())
        return 1 - missed / total if total else 0.0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _rows_of(self, X: Any, reset: bool = True) -> Any:  # noqa: N803
        return validate_data(self, X, dtype="numeric", accept_sparse="csr", reset=reset)

    def _codes(self, block: Float[Tensor, "b d"]) -> Codes:
        return self.stack_.encode(block)

    def _begin(self, array: Any) -> Rows:
        """An untrained state, for rows as these."""
        self._seed = int(check_random_state(self.random_state).randint(1 << 31))
        rows = Rows.of(array, "center_and_scale" if self.pre_bias else "scale", self._seed)
        length = math.sqrt(rows.dimensions)
        self._normalization = Normalization(rows.normalization.mean, rows.normalization.scale * length)
        self._mechanisms = self._costs()
        self._state = State.start(self._dictionary(), rows.dimensions, self._mechanisms, [self._seed])
        return rows

    def _dictionary(self) -> Dictionary:
        rule: JsonDict = {"kind": self.activation}
        if self.activation in WITH_K:
            k = self.k if self.k is not None else max(1, round(self.target_l0))
            rule["k"] = min(k, self.n_components) if isinstance(self.n_components, int) else k
        if self.activation == "variational":
            rate = min(0.5, self.target_l0 / max(1, self.n_components))
            rule |= {"rate": max(rate, 1e-6), "weight": VARIATIONAL_WEIGHT}
        settings = {"d_sae": self.n_components, "activation": rule, "pre_bias": self.pre_bias}
        return check(Dictionary, settings, type(self).__name__)

    def _costs(self) -> Mechanisms:
        """The sparsity cost, and what else is asked for."""
        given: list[Mechanism] = list(self.mechanisms or ())
        named: dict[str, Mechanism] = {name_of(type(mechanism)): mechanism for mechanism in given}
        if len(named) < len(given):
            raise UserError("SparseAutoencoder was given two mechanisms of one kind; accepted: each kind once")
        if self.activation in STEERED and "sparsity" not in named:
            settings = {"weight": STEERED[self.activation], "target_l0": float(self.target_l0)}
            fixed = (
                {}
                if self.sparsity is None or self.activation not in FIXED
                else {"weight": float(self.sparsity), "target_l0": 0.0}
            )
            named["sparsity"] = check(Sparsity, settings | fixed, type(self).__name__)
        return {name: stack_configs([mechanism]) for name, mechanism in named.items()}

    def _training(self, steps: int, decay: float) -> Training:
        pace = {"steps": steps, "batch": self.batch, "learning_rate": float(self.learning_rate), "decay_share": decay}
        return stack_configs([check(Training, pace, type(self).__name__)])

    def _train(self, rows: Rows, training: Training, begun: int) -> None:
        """Go on from the state, with batches counted from where it is."""
        center, scale = rows.normalization, self._normalization

        def inputs(position: int) -> Inputs:
            x = center.undo(rows.batch(position - begun, training.batch).x)
            return Inputs(scale.apply(x))

        data = Data(inputs, rows.dimensions, rows, (scale, None))
        lines = self.stack_.metadata["history"] if begun else []
        fitting = Fitting(self._state, data, training, self._mechanisms, {"members": [{"seed": self._seed}]}, lines)
        self.stack_ = replace(fitting.go_on(training.steps, self.verbose), training=None)
        self.components_ = self.stack_.directions[0].numpy()
        self.n_iter_ = self._state.step


def rows_in(array: Any) -> int:
    return int(array.shape[0])


def _blocks(array: Any) -> Iterator[Float[Tensor, "b _"]]:
    """Some thousands of rows at a time, as float32."""
    for start in range(0, rows_in(array), ROWS):
        yield read_rows(array, np.arange(start, min(start + ROWS, rows_in(array)), dtype=np.int64))


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
