"""A planted map: sparse factors of the inputs drive factors of the targets through a known sparse circuit.

    x        = Σ_i strength_i · direction_i                   as in `superposition`
    drive_j  = Σ_i strength_i · edge_ij                       few edges; a share of them is negative
    y        = Σ_j relu(drive_j - threshold) · target direction_j

A transcoder that learns y from x should have a feature for each input factor, and what that feature writes should be
the target factors that the factor drives.
"""

from functools import cached_property
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.nn.functional import normalize

from unbraid.randomness import stream
from unbraid.worlds.superposition import Superposition
from unbraid.worlds.world import Batch, Circuit


class PlantedMap(Superposition):
    """Planted features of the inputs, planted factors of the targets, and a known sparse circuit between them.

    `fit` trains transcoders on it; `score` says whether their features read the planted features, and whether what they
    write are the planted connections (`edge_auroc`, `edge_f1`).

    Attributes
    ----------
    circuit : Circuit
        `edges` (n_features, n_targets), 0 where there is none; and `directions` (n_targets, d_out).

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.PlantedMap(dimensions=32, n_features=48, d_out=24, n_targets=40, fan_out=2)
    >>> batch = world.batch(position=0, size=8)
    >>> batch.x.shape, batch.target.shape
    (torch.Size([8, 32]), torch.Size([8, 24]))
    >>> (world.circuit.edges != 0).sum(1).unique().tolist()
    [2]
    """

    kind: Literal["planted_map"] = "planted_map"  # pyright: ignore[reportIncompatibleVariableOverride]
    """The world's name in a configuration."""
    d_out: int = Field(default=256, ge=1, le=1 << 20)
    """Number of dimensions of the targets; more make the target directions more nearly orthogonal."""
    n_targets: int = Field(default=512, ge=1, le=1 << 24)
    """Number of planted factors of the targets."""
    fan_out: int = Field(default=3, ge=1, le=1 << 20)
    """Number of target factors that each feature drives; more make every feature write a denser mixture."""
    inhibitory: float = Field(default=0.0, ge=0, le=1)
    """Share of the connections with a negative weight; where more are, the map is further from a sum of features."""
    threshold: float = Field(default=0.0, ge=0)
    """What the drive of a target factor must exceed; higher makes targets sparser and features depend on each other."""

    @model_validator(mode="after")
    def check_fan_out(self) -> Self:
        if self.fan_out > self.n_targets:
            raise ValueError(f"fan_out is {self.fan_out}; accepted: at most n_targets, {self.n_targets}")
        return self

    @property
    def target_dimensions(self) -> int:
        return self.d_out

    @cached_property
    def circuit(self) -> Circuit:  # pyright: ignore[reportIncompatibleMethodOverride]
        rng = stream(self.seed, "circuit")
        edges = np.zeros((self.n_features, self.n_targets), np.float32)
        for row in edges:
            weights = rng.uniform(0.5, 1, self.fan_out) * np.where(rng.random(self.fan_out) < self.inhibitory, -1, 1)
            row[rng.choice(self.n_targets, self.fan_out, replace=False)] = weights
        rows = stream(self.seed, "target directions").standard_normal((self.n_targets, self.d_out), dtype=np.float32)
        return Circuit(torch.from_numpy(edges), normalize(torch.from_numpy(rows), dim=1), self.threshold)

    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        batch = super().batch(position, size, split)
        drive = batch.truth.decode(self.circuit.edges[None])[0]
        return Batch(batch.x, batch.truth, batch.exact, self.circuit.targets(drive))
