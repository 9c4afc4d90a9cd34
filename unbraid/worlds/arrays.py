"""Rows of an array as a world: whatever holds activations already, in any float type, or gives them batch by batch.

array or tensor (n, d) or (batch, sequence, d)    every position is a row; a memory map is read where it is asked for
scipy.sparse array (n, d)                         made dense a batch at a time
iterator of arrays, DataLoader                    read in its own order; `Stream` cuts it into batches of one size
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ConfigDict, Field
from scipy.sparse import issparse

from unbraid.activations.diagnosis import first_rows, suggest_scale_free
from unbraid.activations.normalization import Normalization, Normalize
from unbraid.activations.shards import Shards, permute
from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.errors import UserError
from unbraid.worlds.activations import Activations
from unbraid.worlds.world import Batch, World

FIRST_ROWS, FIRST_NUMBERS = 32_768, 1 << 25
"""Mean and scale are those of so many rows, or of as many as hold so many numbers."""
STREAM_ROWS = 8192
"""So many rows of a stream decide them."""
ACCEPTED = (
    "a NumPy, torch or scipy.sparse array (n, d) or (batch, sequence, d), an iterator or DataLoader of them, a folder "
    "that `unbraid capture` has written, or a world"
)
AUTO = "auto"


class Rows(World):
    """The rows of an array. No features of theirs are known, and none are held out: every split has all rows.

    Parameters
    ----------
    array : array, tensor or sparse array, shape (n, d) or (batch, sequence, d)
        The rows, of any float type.
    dimensions : int
        d.
    normalize : {"auto", "center_and_scale", "center", "scale", "none"}
        What `batch` does to them; "auto" scales, and centers where `diagnose` would.
    seed : int
        Another seed visits the rows in another order.

    Examples
    --------
    >>> import numpy as np
    >>> from unbraid.worlds.arrays import Rows
    >>> rows = Rows.of(np.ones((2, 3, 4), np.float16))
    >>> len(rows), rows.batch(0, 5, split="evaluation").x.shape
    (6, torch.Size([5, 4]))
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    array: Any = Field(repr=False)
    """The rows, of any float type."""
    dimensions: int = Field(ge=1)
    """Numbers in a row; read from the array."""
    normalize: str = "none"
    """What is done to rows: center_and_scale, center, scale, none; or auto: scale, and center where it is needed."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Another seed visits the rows in another order."""

    @classmethod
    def of(cls, array: Any, normalize: str = "none", seed: int = 0) -> "Rows":
        """The rows of this array; what is none is refused."""
        check_array(array)
        return cls(array=array, dimensions=int(array.shape[-1]), normalize=normalize, seed=seed)

    def __len__(self) -> int:
        return int(np.prod(self.array.shape[:-1]))

    @property
    def directions(self) -> Float[Tensor, "n d"]:
        return torch.zeros(0, self.dimensions)

    @property
    def probabilities(self) -> Float[Tensor, "n"]:
        return torch.zeros(0, dtype=torch.float64)

    @cached_property
    def normalization(self) -> Normalization:  # pyright: ignore[reportIncompatibleMethodOverride]
        size = max(1, min(len(self), FIRST_ROWS, max(1024, FIRST_NUMBERS // self.dimensions)))
        return normalization_of(read_rows(self.array, self._numbers(0, size, "first")), self.normalize)

    def batch(self, position: int, size: int, split: str = "train") -> Batch:
        return without_truth(self.normalization.apply(read_rows(self.array, self._numbers(position, size, split))))

    def _numbers(self, position: int, size: int, split: str) -> Int[np.ndarray, "b"]:
        """Which rows: for training each once an epoch, in a new order; else as they stand."""
        positions = np.arange(position * size, (position + 1) * size, dtype=np.int64)
        if split == "evaluation":
            return positions % len(self)
        numbers = np.empty(size, np.int64)
        for epoch in np.unique(positions // len(self)).tolist():
            inside = positions // len(self) == epoch
            numbers[inside] = permute(positions[inside] % len(self), len(self), self.seed, "rows", split, epoch)
        return numbers


def without_truth(x: Float[Tensor, "b d"]) -> Batch:
    empty = torch.zeros(1, len(x), 0)
    return Batch(x, Codes(empty.long(), empty, 0))


def is_array(given: Any) -> bool:
    return isinstance(given, np.ndarray | Tensor) or issparse(given)


def check_array(array: Any) -> None:
    """Refuse what holds no rows of numbers."""
    if not is_array(array):
        raise UserError(f"an array was asked for, and {type(array).__name__} found; accepted: {ACCEPTED}")
    if array.ndim < 2 or 0 in array.shape:
        raise UserError(f"an array has shape {tuple(array.shape)}; accepted: (n, d) or (batch, sequence, d), not empty")
    kind = np.dtype(np.float32) if isinstance(array, Tensor) else array.dtype
    strange = array.is_complex() or array.dtype == torch.bool if isinstance(array, Tensor) else kind.kind in "cbOSUmM"
    if strange:
        raise UserError(f"an array holds {array.dtype}; accepted: numbers of any float or integer type")


def read_rows(array: Any, numbers: Int[np.ndarray, "b"]) -> Float[Tensor, "b d"]:
    """These rows, as float32 in the processor's memory; of an array that is mapped from a file, only these are read."""
    if isinstance(array, Tensor):
        places = torch.unravel_index(torch.from_numpy(numbers).to(array.device), array.shape[:-1])
        return finite(array.detach()[places].to("cpu", torch.float32))
    if issparse(array):
        return finite(torch.from_numpy(array.tocsr()[numbers].toarray().astype(np.float32)))
    rows = array[np.unravel_index(numbers, array.shape[:-1])]
    with np.errstate(over="ignore"):  # `finite` says so
        return finite(torch.from_numpy(np.ascontiguousarray(rows, np.float32)))


def finite(x: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    if not bool(x.isfinite().all()):
        raise UserError(
            "an array holds numbers that are not finite (nan, infinity, or beyond float32); accepted: finite"
        )
    return x


def normalization_of(rows: Float[Tensor, "b d"], normalize: str) -> Normalization:
    """The mean and scale of rows; of "auto", what makes dictionaries independent of the scale of their inputs."""
    exact = rows.double()
    kind: Normalize = suggest_scale_free(exact) if normalize == AUTO else normalize  # pyright: ignore[reportAssignmentType]
    return Normalization.of(exact, kind)


def batches_of(iterable: Iterable[Any]) -> Iterator[Tensor]:
    """The rows of what an iterator gives: arrays, or tuples whose first is one, as a DataLoader's."""
    for item in iterable:
        first: Any = item[0] if isinstance(item, tuple | list) and item else item
        check_array(first)
        yield read_rows(first, np.arange(int(np.prod(first.shape[:-1])), dtype=np.int64))


class Stream:
    """Batches of one size of what an iterator gives, in its order; what can be read again is, from its beginning.

    It is asked for batch after batch, and knows no way back. The last batch of what ends may be smaller.
    """

    def __init__(self, given: Iterable[Any], batch: int, normalize: str) -> None:
        self._given, self._batch = given, batch
        self._once = iter(given) is given
        self._items = batches_of(given)
        self._rows: list[Tensor] = []
        self._fill(max(batch, STREAM_ROWS))
        if not self._rows:
            raise UserError(f"an iterator gave no rows; accepted: {ACCEPTED}")
        first = torch.cat(self._rows)
        self._rows = [first]
        self.dimensions = first.shape[1]
        self.normalization = normalization_of(first[:STREAM_ROWS], normalize)

    def take(self) -> Float[Tensor, "b d"] | None:
        """The next batch; None where there is none."""
        self._fill(self._batch)
        if not self._rows:
            return None
        rows = torch.cat(self._rows) if len(self._rows) > 1 else self._rows[0]
        rest = rows[self._batch :]
        self._rows = [rest] if len(rest) else []
        return self.normalization.apply(rows[: self._batch])

    def _fill(self, wanted: int) -> None:
        began_again = False
        while sum(map(len, self._rows)) < wanted:
            rows = next(self._items, None)
            if rows is not None:
                if self._rows and rows.shape[1] != self._rows[0].shape[1]:
                    widths = f"{self._rows[0].shape[1]} and {rows.shape[1]}"
                    raise UserError(f"an iterator gave rows of {widths} numbers; accepted: rows of one width")
                self._rows.append(rows)
                began_again = False
            elif self._once or began_again:
                return
            else:
                self._items, began_again = batches_of(self._given), True


def open_rows(given: Any, normalize: str = AUTO, seed: int = 0) -> World | None:
    """What was given as a world: itself, rows of an array, or a folder of shards; None where it must be iterated."""
    if isinstance(given, World):
        if normalize != AUTO:
            raise UserError(
                f'normalize is "{normalize}" beside a world, whose batches are as they are; accepted: "auto"'
            )
        return given
    check_normalize(normalize)
    if is_array(given):
        return Rows.of(given, normalize, seed)
    if isinstance(given, str | Path):
        return _captured(Path(given), normalize, seed)
    if isinstance(given, Iterable):
        return None
    raise UserError(f"data was asked for, and {type(given).__name__} found; accepted: {ACCEPTED}")


def world_of(given: Any, samples: int) -> tuple[World, int]:
    """What was given, as it is, to be scored on, and how many samples of those asked for it has."""
    world = open_rows(given, AUTO if isinstance(given, World) else "none")
    if world is None:
        rows = list(_first(batches_of(given), samples))
        if not rows:
            raise UserError(f"an iterator gave no rows; accepted: {ACCEPTED}")
        world = Rows.of(torch.cat(rows))
    return world, min(samples, len(world)) if isinstance(world, Rows) else samples


def _first(batches: Iterator[Tensor], samples: int) -> Iterator[Tensor]:
    """As many as it takes."""
    for rows in batches:
        yield rows[:samples]
        samples -= len(rows)
        if samples <= 0:
            return


def check_normalize(normalize: str) -> None:
    accepted = (AUTO, "center_and_scale", "center", "scale", "none")
    if normalize not in accepted:
        raise UserError(f"normalize is {normalize!r:.40}; accepted: {', '.join(accepted)}")


def _captured(folder: Path, normalize: str, seed: int) -> Activations:
    """A captured folder, normalized as asked; "auto" as of any other array."""
    if normalize == AUTO:
        shards = Shards.open(folder)
        rows = first_rows(shards)[:, : shards.manifest.origin.input_width]
        normalize = suggest_scale_free(rows.double())
    return Activations.model_validate({"path": str(folder), "normalize": normalize, "seed": seed})
