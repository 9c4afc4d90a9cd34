"""Directions that are given, not found: random ones, the floor of every score, and the true ones, near its ceiling.

Both fire as a cluster does, the nearest direction with its least-squares strength; `slots` is how many may fire.
"""

from typing import Literal

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.dictionaries.baselines.baseline import Baseline, Fitted, Rows, random_directions
from unbraid.dictionaries.baselines.rules import Nearest
from unbraid.errors import Refusal
from unbraid.worlds import AnyWorld


class Random(Baseline):
    """Random unit directions: of the data, only the number of dimensions is looked at."""

    kind: Literal["random"] = "random"
    slots: int = Field(default=1, ge=1, le=1 << 24)

    def find(self, rows: Rows) -> Fitted:
        return _given(random_directions(self.features, rows.shape[1], [self.seed]), self.slots, len(rows))


class Oracle(Baseline):
    """The true directions of a world, the most frequent first; at most as many as there are."""

    kind: Literal["oracle"] = "oracle"
    world: AnyWorld
    slots: int = Field(default=1, ge=1, le=1 << 24)

    def find(self, rows: Rows) -> Fitted:
        if self.world.dimensions != rows.shape[1]:
            raise Refusal(
                f"the oracle's world has {self.world.dimensions} dimensions, and it was given rows of {rows.shape[1]}; "
                f"accepted: rows of {self.world.dimensions}"
            )
        kept = self.world.probabilities.argsort(descending=True, stable=True)[: self.features]
        return _given(self.world.directions[kept][None], self.slots, len(rows))


def _given(directions: Float[Tensor, "m f d"], slots: int, points: int) -> Fitted:
    rule = Nearest(torch.ones(directions.shape[:2]), slots)
    return Fitted(directions, rule, torch.zeros(directions.shape[2]), points)
