"""Activations of a model, from shards on disk: inputs without planted directions.

Those of a model that was taught on stories have the factors behind every row (`told`).

What is not given of model, site, dimensions and checksum is read from the shards and kept in the configuration; what is
given must be what is found, so that a run never goes on with the activations of another model. `capture` says what they
are made of, so that a run can have them captured first; `path` then need not be given.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from unbraid.axes import Float, Int, Tensor
from unbraid.capture.normalisation import Kind, Normalisation
from unbraid.capture.order import Order
from unbraid.capture.shards import Shards
from unbraid.capture.source import Source, refuse_another_source, refuse_uncaptured
from unbraid.codes import Codes
from unbraid.config import Tree, check
from unbraid.errors import Refusal
from unbraid.worlds.world import Batch, World

LOOKED_AT = 32_768
"""So many rows, of those to train on, decide mean and scale."""


@dataclass(frozen=True)
class Told:
    """Rows, and of each its token, its place in the sequence, its document, and the value of every factor or -1."""

    x: Float[Tensor, "n d"]
    tokens: Int[np.ndarray, "n"]
    positions: Int[np.ndarray, "n"]
    documents: Int[np.ndarray, "n"]
    factors: dict[str, Int[np.ndarray, "n"]]


class Activations(World):
    kind: Literal["activations"] = "activations"
    path: str
    capture: Source | None = None
    normalise: Kind = "both"
    model: str
    site: str
    dimensions: int = Field(ge=1)
    checksum: str
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @model_validator(mode="before")
    @classmethod
    def be_what_is_found(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        source = source_of(data)
        folder = folder_of(data, source)
        if source is not None:
            refuse_uncaptured(source, folder)
        manifest = Shards.open(folder).manifest
        if source is not None:
            refuse_another_source(source, manifest, folder)
        origin = manifest.origin
        found = {"model": origin.model, "site": origin.site, "dimensions": origin.width, "checksum": manifest.checksum}
        for name, value in found.items():
            if name in data and data[name] != value:
                raise Refusal(
                    f"{folder} holds activations with {name} {value!r}, and {data[name]!r:.60} was asked for; "
                    f"accepted: shards of that {name}, or world.{name} left out"
                )
        return {**data, **found, "path": str(folder)}

    @property
    def directions(self) -> Float[Tensor, "n d"]:
        return torch.zeros(0, self.dimensions)

    @property
    def probabilities(self) -> Float[Tensor, "n"]:
        return torch.zeros(0, dtype=torch.float64)

    @cached_property
    def normalisation(self) -> Normalisation:  # pyright: ignore[reportIncompatibleMethodOverride]
        order = self._order("train")
        return Normalisation.of(self._shards.activations(order.rows(0, min(len(order), LOOKED_AT))), self.normalise)

    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        x = self._shards.activations(self._order(split).rows(position, size))
        empty = torch.zeros(1, size, 0)
        return Batch(self.normalisation.apply(x), Codes(empty.long(), empty, 0))

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """What is known of every row, and what the values are called."""
        return self._shards.manifest.origin.factors

    def told(self, amount: int) -> "Told":
        """Rows that no training has seen, in the order of the text, and all that is known of them."""
        rows = self._order("evaluation").in_order(amount)
        x = self.normalisation.apply(self._shards.activations(rows))
        places = {name: self._shards.column(name, rows) for name in ("tokens", "positions", "documents")}
        factors = {name: self._shards.column(f"factor.{name}", rows) for name in self.factors}
        return Told(x, **places, factors=factors)

    @cached_property
    def _shards(self) -> Shards:
        return Shards.open(self.path)

    @cached_property
    def _orders(self) -> dict[str, Order]:
        return {}

    def _order(self, split: str) -> Order:
        return self._orders.setdefault(split, Order(self._shards, split, self.seed))


def source_of(world: Tree) -> Source | None:
    """What the activations of a world's table are made of, where it says so."""
    asked = world.get("capture")
    return check(Source, asked, "world.capture") if isinstance(asked, dict) else asked


def folder_of(world: Tree, source: Source | None) -> Path:
    """Where they are: as the table says, or else as what they are made of says."""
    path = world.get("path")
    if isinstance(path, str):
        return Path(path)
    if source is None or path is not None:
        raise Refusal(
            "world.path was not given; accepted: a folder that `unbraid capture` has written, or world.capture"
        )
    return source.folder
