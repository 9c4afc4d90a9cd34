"""Directions as the factors of a matrix of samples: PCA, ICA and NMF, by scikit-learn."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn.functional import normalize

from unbraid.dictionaries.baselines.baseline import Baseline, FittedBaseline, Rows, counted
from unbraid.dictionaries.baselines.clusters import distinct
from unbraid.dictionaries.baselines.rules import LeastSquares, NonNegative, fold, split
from unbraid.errors import UserError

FLAT = 1e-10
"""A direction with less than this share of the largest direction's variance is rounding, not data."""


class Pca(Baseline):
    """Principal components: orthogonal directions of greatest variance, as many as the rank of the centred data.

    The sign is scikit-learn's: the largest entry is positive. A feature may therefore come out with the opposite
    sign, and scores that look at signs then miss it.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> ub.Pca(n_components=1).fit(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).components_.tolist()
    [[1.0, 0.0]]
    """

    kind: Literal["pca"] = "pca"
    """The baseline's name in a configuration."""

    def find(self, rows: Rows) -> FittedBaseline:
        from sklearn import decomposition

        wide = rows.astype(np.float64)
        solver = "covariance_eigh" if len(rows) > rows.shape[1] else "full"
        search = decomposition.PCA(min(self.n_components, _rank(wide)), svd_solver=solver).fit(wide)
        return _about_the_mean(np.asarray(search.components_), search.mean_, len(rows), 0)


class Ica(Baseline):
    """Independent components by FastICA, as many as the rank of the centred data.

    corrected: columns of the mixing matrix, with the sign in which strengths are skewed to the positive. published:
    rows of the unmixing matrix, with FastICA's sign.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> sources = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0)) ** 4
    >>> planted = torch.tensor([[0.6, 0.8], [1.0, 0.0]])
    >>> directions = ub.Ica(n_components=2).fit(sources @ planted).directions[0]
    >>> bool(((directions @ planted.T).amax(0) > 0.98).all())
    True
    """

    kind: Literal["ica"] = "ica"
    """The baseline's name in a configuration."""
    form: Literal["published", "corrected"] = "corrected"
    """corrected, or published: as in the source study; the class docstring says what differs."""
    points: int | None = Field(default=1 << 14, ge=2)
    """Rows of data that are used, at most, chosen by the seed; more are slower and better."""
    iterations: int = Field(default=200, ge=1)
    """Iterations of FastICA after which the search stops, converged or not."""

    def find(self, rows: Rows) -> FittedBaseline:
        from sklearn import decomposition

        wide = rows.astype(np.float64)
        rank = _rank(wide)
        search = decomposition.FastICA(
            min(self.n_components, rank),
            whiten="unit-variance",
            whiten_solver="eigh" if rank == rows.shape[1] else "svd",  # eigh complains of flat directions it will drop
            max_iter=self.iterations,
            random_state=self.random_state,
        )
        with counted() as unconverged:
            sources = np.asarray(search.fit_transform(wide))
        skew = np.where((sources**3).sum(0) < 0, -1, 1)
        mixing = np.asarray(search.mixing_)
        directions = np.asarray(search.components_) if self.form == "published" else mixing.T * skew[:, None]
        return _about_the_mean(directions, search.mean_, len(rows), len(unconverged))


class Nmf(Baseline):
    """Non-negative matrix factorisation of data split into positive and negative parts: [x⁺ x⁻] ≈ c·P with c, P ≥ 0.

    Each component becomes one direction P⁺ - P⁻, which may have any sign, with strengths c that are never negative.
    There are at most 2d components, and at most as many as distinct rows.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, -3.0], [0.0, -1.0]])
    >>> fitted = ub.Nmf(n_components=2).fit(rows)
    >>> bool(torch.allclose(fitted.decode(fitted.encode(rows))[0], rows, atol=1e-3))
    True
    """

    kind: Literal["nmf"] = "nmf"
    """The baseline's name in a configuration."""
    points: int | None = Field(default=1 << 13, ge=2)
    """Rows of data that are used, at most, chosen by the seed; more are slower and better."""
    iterations: int = Field(default=200, ge=1)
    """Iterations after which the search stops, converged or not."""

    @property
    def sees_zeros(self) -> bool:
        return False

    def find(self, rows: Rows) -> FittedBaseline:
        from sklearn import decomposition

        parts = min(distinct(rows, self.n_components), 2 * rows.shape[1])
        search = decomposition.NMF(
            parts,  # pyright: ignore[reportArgumentType]
            init="nndsvda",
            max_iter=self.iterations,
            random_state=self.random_state,
        )
        with counted() as unconverged:
            search.fit(split(torch.from_numpy(rows)).numpy())
        components = torch.from_numpy(search.components_)[None]
        lengths = fold(components).norm(dim=-1)
        kept = components[:, lengths[0] > 1e-6 * components.norm(dim=-1).max()]  # nothing, or P⁺ = P⁻: no direction
        scaled = kept / fold(kept).norm(dim=-1, keepdim=True)
        nowhere = torch.zeros(rows.shape[1])
        return FittedBaseline(fold(scaled), NonNegative(scaled), nowhere, len(rows), len(unconverged))


def _rank(rows: NDArray[np.float64]) -> int:
    """In how many directions the rows vary."""
    centred = rows - rows.mean(0)
    variances = np.linalg.eigvalsh(centred.T @ centred if len(rows) > rows.shape[1] else centred @ centred.T)
    rank = int((variances > FLAT * variances.max()).sum()) if variances.max() > 0 else 0
    if rank == 0:
        raise UserError(f"all {len(rows)} rows are the same, so nothing varies; accepted: at least two different rows")
    return rank


def _about_the_mean(
    directions: NDArray[np.floating], mean: NDArray[np.floating], points: int, said: int
) -> FittedBaseline:
    unit = normalize(torch.from_numpy(directions), dim=-1).float()[None]
    return FittedBaseline(unit, LeastSquares.of(unit), torch.from_numpy(mean).float(), points, said)
