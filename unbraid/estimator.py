"""A sparse autoencoder with scikit-learn's face, for its pipelines and for anyone with an array of activations."""

from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from unbraid.codes import Codes
from unbraid.config import check
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.transforming import CodesTransformer
from unbraid.mechanisms import Sparsity
from unbraid.members import across
from unbraid.randomness import stream
from unbraid.training.fit import train
from unbraid.training.schedule import Training
from unbraid.training.step import State

COUNTED = ("topk", "batchtopk")
PENALISED = ("relu", "jumprelu", "gated")


class SparseAutoencoder(CodesTransformer):
    """One dictionary trained on the rows of X: `transform` gives its codes, `components_` its unit directions.

    `activation="topk"` and `"batchtopk"` fire the `k` largest; `"relu"`, `"jumprelu"` and `"gated"` are made sparse by
    the weight `sparsity` (per sample, against the squared error summed over dimensions); `"variational"` by its prior.
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
        rule = {"kind": self.activation, "k": self.k} if self.activation in COUNTED else {"kind": self.activation}
        settings = {"features": self.n_components, "activation": rule, "pre_bias": self.pre_bias}
        dictionary = check(Dictionary, settings, type(self).__name__)
        pace = {"steps": self.steps, "batch": self.batch, "learning_rate": float(self.learning_rate)}
        training = across([check(Training, pace, type(self).__name__)])
        penalised = self.activation in PENALISED
        mechanisms = {"sparsity": across([Sparsity(weight=float(self.sparsity))])} if penalised else {}
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
