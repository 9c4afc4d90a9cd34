"""What every baseline gives: `fit` finds unit directions in rows of data, and what it returns has a dictionary's face.

A baseline finds at most as many directions as it is asked for and as the data allow; `Fitted.features` says how many.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Record
from unbraid.dictionaries.baselines.rules import Rule
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.errors import Refusal
from unbraid.randomness import stream

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Fitted:
    """Directions and the rule by which they fire, about a centre; found in `points` rows.

    There is one member, unless it was made by `at_random` with several seeds. `unconverged` counts how often the
    search said that it stopped before it converged.
    """

    directions: Float[Tensor, "m f d"]
    rule: Rule
    centre: Float[Tensor, "d"]
    points: int
    unconverged: int = 0

    @property
    def members(self) -> int:
        return self.directions.shape[0]

    @property
    def features(self) -> int:
        return self.directions.shape[1]

    def encode(self, x: Float[Tensor, "b d"]) -> Codes:
        return self.rule.codes(x.float() - self.centre, self.directions)

    def decode(self, codes: Codes) -> Float[Tensor, "m b d"]:
        return codes.decode(self.directions) + self.centre

    def at_random(self, seeds: Sequence[int]) -> "Fitted":
        """Chance: random unit directions in place of those that were found, fired by the same rule."""
        directions = random_directions(self.features, self.directions.shape[2], seeds)
        return replace(self, directions=directions, rule=self.rule.renewed(directions))

    @property
    def components_(self) -> Rows:
        """The directions of the first member, by scikit-learn's name."""
        return self.directions[0].numpy()

    def transform(self, X: ArrayLike) -> Rows:  # noqa: N803
        return self.encode(torch.from_numpy(np.asarray(X, dtype=np.float32))).to_dense()[0].numpy()

    def inverse_transform(self, X: ArrayLike) -> Rows:  # noqa: N803
        return self.decode(Codes.dense(torch.from_numpy(np.asarray(X, dtype=np.float32))[None]))[0].numpy()


class Baseline(Record, ABC):
    """A way to find directions. Above `points` rows it looks at that many, drawn by the seed; None looks at all."""

    features: int = Field(default=512, ge=1, le=1 << 24)
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    points: int | None = Field(default=None, ge=2)

    def fit(self, x: Float[Tensor, "b d"]) -> Fitted:
        rows = (x.detach().float() + 0.0).contiguous().numpy()  # -0.0 becomes 0.0: equal rows have equal bytes
        if not np.isfinite(rows).all():
            raise Refusal(f"{self._name} was given data with infinite or missing values; accepted: finite numbers")
        some = rows.any(1)
        if not some.any():
            raise Refusal(
                f"{self._name} was given {len(rows)} rows without a value other than 0; accepted: at least one"
            )
        rows = rows if self.sees_zeros else rows[some]
        if self.points is not None and len(rows) > self.points:
            rows = rows[np.sort(stream(self.seed, "points").choice(len(rows), self.points, replace=False))]
        return self.find(rows)

    @property
    def sees_zeros(self) -> bool:
        """Whether rows that are all zero are looked at; they have no direction, but they have a say in means."""
        return True

    @abstractmethod
    def find(self, rows: Rows) -> Fitted:
        """The directions in these rows, of which at least one is not zero."""

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def random_state(self) -> int:
        """The seed, as scikit-learn takes it."""
        return int(stream(self.seed, "baseline").integers(1 << 32))


def random_directions(features: int, dimensions: int, seeds: Sequence[int]) -> Float[Tensor, "m f d"]:
    """Those an untrained dictionary with this seed starts from."""
    return Stack.start(Dictionary(features=features), dimensions, seeds).directions


@contextmanager
def counted() -> Iterator[list[str]]:
    """Collects what is said about convergence instead of showing it; other warnings are passed on."""
    from sklearn.exceptions import ConvergenceWarning

    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield said
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            said.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
