"""Baselines: `fit` finds unit directions in rows of data, and its result encodes and decodes like a stack.

A baseline finds at most as many directions as it is asked for and as the data allow; `FittedBaseline.features` says how
many. Two of them are given, not found: `Random`, the floor of every score, and `Oracle`, the true directions, near its
ceiling. Both fire as a cluster does, the nearest direction with its least-squares strength.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Config
from unbraid.dictionaries.baselines.rules import Nearest, Rule
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.errors import UserError
from unbraid.randomness import stream
from unbraid.worlds import AnyWorld

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class FittedBaseline:
    """Directions and the rule by which they fire, about a centre.

    There is one member, unless it was made by `at_random` with several seeds.
    """

    directions: Float[Tensor, "m f d"]
    """Unit rows."""
    rule: Rule
    """How they fire."""
    centre: Float[Tensor, "d"]
    """Subtracted from inputs, added to reconstructions."""
    points: int
    """How many rows of data they were found in."""
    unconverged: int = 0
    """How often the search said that it stopped before it converged."""

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

    def at_random(self, seeds: Sequence[int]) -> "FittedBaseline":
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


class Baseline(Config, ABC):
    """The base class of baselines: simpler ways to find directions in data.

    `fit` returns a `FittedBaseline`, which encodes and decodes like a `Stack`; `score` accepts it. A subclass
    implements `find`.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> fitted = ub.Pca(n_components=2).fit(torch.randn(50, 4))
    >>> fitted.encode(torch.randn(3, 4)).to_dense().shape  # member, sample, direction
    torch.Size([1, 3, 2])
    """

    n_components: int = Field(default=512, ge=1, le=1 << 24)
    """Number of directions to find, at most; fewer where the data have a lower rank or fewer distinct rows."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Chooses the rows that are used, and starts the search."""
    points: int | None = Field(default=None, ge=2)
    """Rows of data that are used, at most, chosen by the seed; more are slower and better. None: all."""

    renamed: ClassVar[dict[str, str]] = {"features": "n_components"}

    def fit(self, x: Float[Tensor, "b d"]) -> FittedBaseline:
        """Find directions in rows of data.

        Parameters
        ----------
        x : Tensor, shape (b, d)
            Finite numbers, at least one of them not 0.

        Returns
        -------
        FittedBaseline
            `directions`, unit rows of shape (1, f, d), with `encode` and `decode`.
        """
        rows = (x.detach().float() + 0.0).contiguous().numpy()  # -0.0 becomes 0.0: equal rows have equal bytes
        if not np.isfinite(rows).all():
            raise UserError(f"{self._name} was given data with infinite or missing values; accepted: finite numbers")
        nonzero = rows.any(1)
        if not nonzero.any():
            raise UserError(
                f"{self._name} was given {len(rows)} rows without a value other than 0; accepted: at least one"
            )
        rows = rows if self.sees_zeros else rows[nonzero]
        if self.points is not None and len(rows) > self.points:
            rows = rows[np.sort(stream(self.seed, "points").choice(len(rows), self.points, replace=False))]
        return self.find(rows)

    @property
    def sees_zeros(self) -> bool:
        """Whether rows that are all zero are looked at; they have no direction, but they have a say in means."""
        return True

    @abstractmethod
    def find(self, rows: Rows) -> FittedBaseline:
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
    return Stack.start(Dictionary(d_sae=features), dimensions, seeds).directions


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


class Random(Baseline):
    """Random unit directions, which use nothing of the data but its dimensions: chance for every score.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> ub.Random(n_components=8).fit(torch.randn(10, 4)).directions.shape
    torch.Size([1, 8, 4])
    """

    kind: Literal["random"] = "random"
    """The baseline's name in a configuration."""
    slots: int = Field(default=1, ge=1, le=1 << 24)
    """Number of directions that may fire in a sample, one after the other; more reconstruct better."""

    def find(self, rows: Rows) -> FittedBaseline:
        return _given(random_directions(self.n_components, rows.shape[1], [self.seed]), self.slots, len(rows))


class Oracle(Baseline):
    """The true directions of a world, most frequent first: near the ceiling of every score.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> world = ub.Superposition()
    >>> x = world.batch(position=0, size=64).x
    >>> torch.equal(ub.Oracle(world=world, n_components=3).fit(x).directions[0], world.directions[:3])
    True
    """

    kind: Literal["oracle"] = "oracle"
    """The baseline's name in a configuration."""
    world: AnyWorld
    """The world whose directions it returns; a world with planted features."""
    slots: int = Field(default=1, ge=1, le=1 << 24)
    """Number of directions that may fire in a sample, one after the other; more reconstruct better."""

    def find(self, rows: Rows) -> FittedBaseline:
        if self.world.dimensions != rows.shape[1]:
            raise UserError(
                f"the oracle's world has {self.world.dimensions} dimensions, and it was given rows of {rows.shape[1]}; "
                f"accepted: rows of {self.world.dimensions}"
            )
        kept = self.world.probabilities.argsort(descending=True, stable=True)[: self.n_components]
        return _given(self.world.directions[kept][None], self.slots, len(rows))


def _given(directions: Float[Tensor, "m f d"], slots: int, points: int) -> FittedBaseline:
    rule = Nearest(torch.ones(directions.shape[:2]), slots)
    return FittedBaseline(directions, rule, torch.zeros(directions.shape[2]), points)
