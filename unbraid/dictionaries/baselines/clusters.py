"""Directions as the centres of clusters of samples: k-means and k-medoids.

A sample that is all zero has no direction: it takes no part in the search, and encodes to nothing. There are at most as
many centres as distinct rows. Signs are the data's own: a centre is a sample, or a mean of samples.
"""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from unbraid.dictionaries.baselines.baseline import Baseline, FittedBaseline, Rows, counted
from unbraid.dictionaries.baselines.rules import Nearest
from unbraid.errors import UserError

VANISHED = 1e-6
"""A centre shorter than this share of the longest row is a balance of opposites: it has no direction and is dropped."""


class KMeans(Baseline):
    """k-means: the means of clusters by scikit-learn, from one k-means++ start; or by mini-batches.

    corrected: mini-batches give up no small cluster, since small clusters are the rare features. published:
    scikit-learn's mini-batches at every size, zero rows included (the source's code is unknown; this gives its
    figures).

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    >>> sorted(ub.KMeans(n_components=2).fit(rows).components_.tolist())
    [[0.0, 1.0], [1.0, 0.0]]
    """

    kind: Literal["kmeans"] = "kmeans"
    """The baseline's name in a configuration."""
    form: Literal["published", "corrected"] = "corrected"
    """corrected, or published: as in the source study; the class docstring says what differs."""
    minibatch_above: int = Field(default=1 << 16, ge=0)
    """Rows above which mini-batches are used; a higher bound is slower and finds better centres."""

    @property
    def sees_zeros(self) -> bool:
        return self.form == "published"

    def find(self, rows: Rows) -> FittedBaseline:
        from sklearn import cluster

        clusters, seed = distinct(rows, self.n_components), self.random_state
        if self.form == "published":
            search = cluster.MiniBatchKMeans(clusters, n_init=3, random_state=seed)  # pyright: ignore[reportArgumentType]
        elif len(rows) <= self.minibatch_above:
            search = cluster.KMeans(clusters, n_init=1, random_state=seed)  # pyright: ignore[reportArgumentType]
        else:
            search = cluster.MiniBatchKMeans(
                clusters,
                batch_size=4096,
                max_iter=10,
                max_no_improvement=None,  # pyright: ignore[reportArgumentType]
                n_init=1,  # pyright: ignore[reportArgumentType]
                reassignment_ratio=0,
                random_state=seed,
            )
        with counted() as unconverged:
            search.fit(rows)
        return _around(np.asarray(search.cluster_centers_, dtype=np.float32), rows, len(unconverged))


class KMedoids(Baseline):
    """k-medoids: the samples nearest to all others of their cluster, by Euclidean distance.

    corrected: FasterPAM from a random start. published: scikit-learn-extra's defaults (start from the samples nearest
    to all others, then alternate), zero rows included; where those are many, all its medoids are zero. Distances
    between n rows take 4n² bytes: 1 GB at the default `points`.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> rows = torch.tensor([[1.0, 0.0], [1.5, 0.0], [2.0, 0.0], [0.0, 3.0]])
    >>> sorted(ub.KMedoids(n_components=2).fit(rows).components_.tolist())
    [[0.0, 1.0], [1.0, 0.0]]
    """

    kind: Literal["kmedoids"] = "kmedoids"
    """The baseline's name in a configuration."""
    form: Literal["published", "corrected"] = "corrected"
    """corrected, or published: as in the source study; the class docstring says what differs."""
    points: int | None = Field(default=1 << 14, ge=2)
    """Rows of data that are used, at most, chosen by the seed; memory grows with their square."""
    iterations: int = Field(default=100, ge=1)
    """Swaps of medoids after which the search stops, converged or not."""

    @property
    def sees_zeros(self) -> bool:
        return self.form == "published"

    def find(self, rows: Rows) -> FittedBaseline:
        import kmedoids
        from sklearn.metrics import pairwise_distances

        distances = pairwise_distances(rows)
        if self.form == "published":
            medoids, iterations = _alternate(distances, min(self.n_components, len(rows)), self.iterations)
            return _around(rows[medoids], rows, int(iterations >= self.iterations), keep_zeros=True)
        state = np.random.RandomState(self.random_state)
        clusters = distinct(rows, self.n_components)
        search = kmedoids.fasterpam(distances, clusters, max_iter=self.iterations, random_state=state, n_cpu=1)
        medoids = np.unique(rows[search.medoids.astype(np.int64)], axis=0)  # two equal ones, if it was stopped early
        return _around(medoids, rows, int(search.n_iter >= self.iterations))


def _alternate(distances: NDArray[np.floating], clusters: int, most: int) -> tuple[NDArray[np.int64], int]:
    """Assign every row to its nearest medoid, then move each medoid amid its rows, until none moves."""
    medoids = np.argpartition(distances.sum(1), clusters - 1)[:clusters].astype(np.int64)
    for iteration in range(most):
        nearest, before = np.argmin(distances[medoids], 0), medoids.copy()
        for cluster in range(clusters):
            rows = np.flatnonzero(nearest == cluster)
            if rows.size:
                costs = distances[np.ix_(rows, rows)].sum(1)
                if costs.min() < distances[medoids[cluster], rows].sum():
                    medoids[cluster] = rows[costs.argmin()]
        if (medoids == before).all():
            return medoids, iteration
    return medoids, most


def distinct(rows: Rows, enough: int) -> int:
    """How many different rows there are, counted up to `enough`."""
    seen: set[bytes] = set()
    for row in rows:
        seen.add(row.tobytes())
        if len(seen) == enough:
            break
    return len(seen)


def _around(centres: Rows, rows: Rows, unconverged: int, keep_zeros: bool = False) -> FittedBaseline:
    lengths = np.linalg.norm(centres, axis=1)
    kept = (lengths > VANISHED * np.linalg.norm(rows, axis=1).max()) | keep_zeros
    if not kept.any():
        raise UserError(
            f"all {len(centres)} cluster centres are zero, as opposite rows cancel; accepted: more features"
        )
    directions = torch.from_numpy(centres[kept] / np.maximum(lengths[kept, None], 1e-30)).float()[None]
    rule = Nearest(torch.from_numpy(lengths[kept]).float()[None])
    return FittedBaseline(directions, rule, torch.zeros(rows.shape[1]), len(rows), unconverged)
