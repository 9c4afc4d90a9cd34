"""Two planted models side by side: some factors are in both, each with a direction of its own there, others in one.

    x = [x of model 1, x of model 2] = Σ_i strength_i · direction_i        as in `superposition`, but

    shared      direction_i = [cos φ · u, sin φ · v]      u, v random unit rows; φ = 45° ± imbalance · 45°
    model 1     direction_i = [u, 0]                      model 2: [0, v]

A crosscoder should have one feature for each factor, and its decoder norms should say in which models the factor is.
"""

import math
from functools import cached_property
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.nn.functional import normalize

from unbraid.axes import Bool, Float, Tensor
from unbraid.randomness import stream
from unbraid.worlds.superposition import Superposition


class PlantedPair(Superposition):
    """Two models' activations, concatenated, with planted factors that both share or only one has.

    `fit` trains crosscoders on it; `score` says whether their decoder norms tell which factors are shared
    (`shared_auroc`, `shared_accuracy`).

    Attributes
    ----------
    presence : Bool Tensor, shape (n_features, 2)
        In which of the two models each factor is.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.PlantedPair(dimensions=32, n_features=40, shared=0.5)
    >>> world.sites  # the widths of the two models
    (16, 16)
    >>> int(world.presence.all(1).sum())
    20
    """

    kind: Literal["planted_pair"] = "planted_pair"  # pyright: ignore[reportIncompatibleVariableOverride]
    """The world's name in a configuration."""
    shared: float = Field(default=0.5, ge=0, le=1)
    """Share of the factors that are in both models; the others are in one of them, half in each."""
    imbalance: float = Field(default=0.25, ge=0, lt=1)
    """How unequally strong shared factors may be in the two models: 0 all alike, nearly 1 some almost in one alone."""

    @model_validator(mode="after")
    def check_even(self) -> Self:
        if self.dimensions % 2:
            raise ValueError(f"dimensions is {self.dimensions}, of two models of equal width; accepted: an even number")
        return self

    @property
    def sites(self) -> tuple[int, ...]:
        return (self.dimensions // 2, self.dimensions // 2)

    @cached_property
    def presence(self) -> Bool[Tensor, "n s"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Drawn at random, so that frequent and rare factors are shared alike."""
        order = stream(self.seed, "presence").permutation(self.n_features)
        shared = round(self.shared * self.n_features)
        present = np.ones((self.n_features, 2), bool)
        present[order[shared::2], 1] = False
        present[order[shared + 1 :: 2], 0] = False
        return torch.from_numpy(present)

    @cached_property
    def directions(self) -> Float[Tensor, "n d"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rng = stream(self.seed, "directions")
        rows = rng.standard_normal((self.n_features, 2, self.dimensions // 2), dtype=np.float32)
        angles = math.pi / 4 * (1 + self.imbalance * rng.uniform(-1, 1, self.n_features))
        lengths = np.stack([np.cos(angles), np.sin(angles)], 1) * self.presence.numpy()
        lengths = torch.from_numpy(lengths / np.linalg.norm(lengths, axis=1, keepdims=True)).float()
        return (normalize(torch.from_numpy(rows), dim=-1) * lengths[..., None]).flatten(1)
