"""Activations of a model, from shards on disk: inputs without planted directions.

Those of a model that was trained on stories have the factors behind every row (`labelled_rows`).

What is not given of model, site, dimensions and checksum is read from the shards and kept in the configuration; what is
given must be what is found, so that a run never goes on with the activations of another model. `capture` says what they
are made of, so that a run can have them captured first; `path` then need not be given.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from unbraid.activations.capture import CaptureConfig, check_captured, check_same_capture
from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.normalization import RENAMED_NORMALIZE, Normalization, Normalize
from unbraid.activations.shards import Order, Origin, Sequences, Shards, weights_fingerprint
from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import JsonDict, check
from unbraid.errors import UserError
from unbraid.worlds.world import Batch, World

NORMALISATION_ROWS = 32_768
"""Training rows that decide mean and scale."""


@dataclass(frozen=True)
class LabelledRows:
    """Activations, and of each row its token, its position in the sequence, its document and its factors."""

    x: Float[Tensor, "n d"]
    tokens: Int[np.ndarray, "n"]
    positions: Int[np.ndarray, "n"]
    documents: Int[np.ndarray, "n"]
    factors: dict[str, Int[np.ndarray, "n"]]
    """The value of each factor, or -1 where it has none."""


@dataclass(frozen=True)
class CapturedSequences:
    """Whole sequences: their rows in the model's units, one after the other; of each sequence its tokens and places."""

    x: Float[Tensor, "n d"]
    target: Float[Tensor, "n o"] | None
    tokens: list[np.ndarray]
    positions: list[np.ndarray]
    documents: list[np.ndarray]


class Activations(World):
    """Activations of a model at one site, read from the shards that `capture` wrote. Their features are not known.

    Parameters
    ----------
    path : str
        The folder of shards. Not needed if `capture` is given.
    capture : CaptureConfig, optional
        What the shards are made of, so that a run can capture them first.
    normalize : {"center_and_scale", "center", "scale", "none"}
        What is done to the rows: subtract the mean, scale to a mean norm of √d, both, or nothing. Mean and scale are
        those of up to 32,768 training rows.
    model, site, dimensions, checksum : optional
        Read from the shards; if given, the shards must agree.
    seed : int, default 0
        Another seed visits the rows in another order.
    kind : {"activations"}
        The world's name in a configuration.

    Attributes
    ----------
    factors : dict of str to tuple of str
        For a model trained on `Stories`: the factors known of every row, and the names of their values. Else empty.
    normalization : Normalization
        What `batch` does to the rows, and how to undo it.

    Examples
    --------
    After `unbraid capture` or `ub.capture` (whose example makes such a folder):

    >>> import unbraid as ub
    >>> world = ub.Activations(path="activations/gpt2")  # doctest: +SKIP
    >>> stack = ub.fit(world, ub.Dictionary(d_sae=4096, activation=ub.TopK(k=32)))  # doctest: +SKIP

    A folder without shards is refused:

    >>> ub.Activations(path="nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    unbraid.errors.UserError: nowhere: there is no such folder (no manifest.json); accepted: ...
    """

    kind: Literal["activations"] = "activations"
    """The world's name in a configuration."""
    path: str
    """The folder of shards."""
    capture: CaptureConfig | None = None
    """What the shards are made of, so that a run can capture them first."""
    normalize: Normalize = "center_and_scale"
    """Whether rows are centred, scaled to a mean norm of √d, both, or left as they are."""
    model: str
    """The model whose activations these are; read from the shards."""
    site: str
    """Where in the model; read from the shards."""
    dimensions: int = Field(ge=1)
    """Width of an input; read from the shards."""
    checksum: str
    """Checksum of the shards; a run refuses to go on with other shards."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Another seed visits the rows in another order."""

    renamed: ClassVar[dict[str, str]] = {"normalise": "normalize"}
    renamed_values: ClassVar[dict[str, dict[str, str]]] = {"normalize": RENAMED_NORMALIZE}

    @model_validator(mode="before")
    @classmethod
    def check_shards(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        cls.check_known(data)  # before anybody looks for shards
        source = source_of(data)
        folder = folder_of(data, source)
        if source is not None:
            check_captured(source, folder)
        manifest = Shards.open(folder).manifest
        if source is not None:
            check_same_capture(source, manifest, folder)
        origin = manifest.origin
        width, checksum = origin.input_width, manifest.checksum
        found = {"model": origin.model, "site": origin.site, "dimensions": width, "checksum": checksum}
        for name, value in found.items():
            if name in data and data[name] != value:
                raise UserError(
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
    def normalization(self) -> Normalization:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Normalization.of(self._first_rows()[:, : self.dimensions], self.normalize)

    @cached_property
    def target_normalization(self) -> Normalization | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not self._origin.targets:
            return None
        return Normalization.of(self._first_rows()[:, self.dimensions :], self.normalize)

    @property
    def target_dimensions(self) -> int | None:
        return sum(self._origin.targets) or None

    @property
    def sites(self) -> tuple[int, ...]:
        several = self._origin.targets or self._origin.inputs
        return several if len(several) > 1 else ()

    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        rows = self._shards.activations(self._order(split).rows(position, size))
        empty = torch.zeros(1, size, 0)
        truth, target = Codes(empty.long(), empty, 0), self.target_normalization
        x = self.normalization.apply(rows[:, : self.dimensions])
        return Batch(x, truth, target=None if target is None else target.apply(rows[:, self.dimensions :]))

    def sequences(self, position: int, size: int) -> "CapturedSequences":
        """Whole training sequences of about so many rows, for what runs the model; see `Sequences`."""
        if len(self._origin.inputs) > 1 or len(self._origin.targets) > 1:
            raise UserError(f"{self.path} holds several sites side by side; accepted: one site, and one target")
        spans = self._sequences.rows(position, size)
        rows = np.concatenate(spans)
        activations = self._shards.activations(rows)
        columns = [[self._shards.column(name, span) for span in spans] for name in ("tokens", "positions", "documents")]
        return CapturedSequences(
            activations[:, : self.dimensions],
            activations[:, self.dimensions :] if self._origin.targets else None,
            *columns,
        )

    @property
    def folder(self) -> Path:
        return Path(self.path)

    def check_same_model(self, model: HuggingFaceModel) -> None:
        """Refuse a model other than the one whose activations these are."""
        origin = self._shards.manifest.origin
        if origin.weights != weights_fingerprint(model.model.state_dict()):
            raise UserError(f"{self.path} holds activations of {origin.model}, and {model.name} has other weights")

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """What is known of every row, and what the values are called."""
        return self._shards.manifest.origin.factors

    def labelled_rows(self, amount: int) -> LabelledRows:
        """Rows that no training has seen, in the order of the text, and all that is known of them."""
        rows = self._order("evaluation").in_order(amount)
        x = self.normalization.apply(self._shards.activations(rows)[:, : self.dimensions])
        places = {name: self._shards.column(name, rows) for name in ("tokens", "positions", "documents")}
        factors = {name: self._shards.column(f"factor.{name}", rows) for name in self.factors}
        return LabelledRows(x, **places, factors=factors)

    def _first_rows(self) -> Float[Tensor, "n _"]:
        """The training rows that decide mean and scale, with their targets."""
        order = self._order("train")
        return self._shards.activations(order.rows(0, min(len(order), NORMALISATION_ROWS)))

    @property
    def _origin(self) -> Origin:
        return self._shards.manifest.origin

    @cached_property
    def _shards(self) -> Shards:
        return Shards.open(self.path)

    @cached_property
    def _sequences(self) -> Sequences:
        return Sequences(self._shards, "train", self.seed)

    @cached_property
    def _orders(self) -> dict[str, Order]:
        return {}

    def _order(self, split: str) -> Order:
        return self._orders.setdefault(split, Order(self._shards, split, self.seed))


def source_of(world: JsonDict) -> CaptureConfig | None:
    """What the activations of a world's table are made of, where it says so."""
    asked = world.get("capture")
    if asked is None or isinstance(asked, CaptureConfig):
        return asked
    if not isinstance(asked, dict):
        raise UserError(f"world.capture is {asked!r:.60}; accepted: a table with model, site and text")
    return check(CaptureConfig, asked, "world.capture")


def folder_of(world: JsonDict, source: CaptureConfig | None) -> Path:
    """Where they are: as the table says, or else as what they are made of says."""
    path = world.get("path")
    if isinstance(path, str):
        return Path(path)
    if source is None or path is not None:
        raise UserError(
            "world.path was not given; accepted: a folder that `unbraid capture` has written, or world.capture"
        )
    return source.folder
