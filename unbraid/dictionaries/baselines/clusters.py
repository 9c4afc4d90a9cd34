"""Directions as the centres of clusters of samples: k-means and k-medoids.

A sample that is all zero has no direction: it takes no part in the search, and encodes to nothing. There are at most as
many centres as distinct rows. Signs are the data's own: a centre is a sample, or a mean of samples.
"""

from typing import Literal

import kmedoids
import numpy as np
import torch
from pydantic import Field
from sklearn import cluster
from sklearn.metrics import pairwise_distances

from unbraid.dictionaries.baselines.baseline import Baseline, Fitted, Rows, counted
from unbraid.dictionaries.baselines.rules import Nearest
from unbraid.errors import Refusal

VANISHED = 1e-6
"""A centre shorter than this share of the longest row is a balance of opposites: it has no direction and is dropped."""


class KMeans(Baseline):
    """Means of clusters: scikit-learn's KMeans, once, from k-means++; above `minibatch_above` rows in mini-batches.

    corrected: in mini-batches no small cluster is given up, for the small clusters are the rare features. published:
    scikit-learn's own mini-batches at every size, zero rows too (the seed's code is unknown; this gives its figures).
    """

    kind: Literal["kmeans"] = "kmeans"
    form: Literal["published", "corrected"] = "corrected"
    minibatch_above: int = Field(default=1 << 16, ge=0)

    @property
    def sees_zeros(self) -> bool:
        return self.form == "published"

    def find(self, rows: Rows) -> Fitted:
        clusters = distinct(rows, self.features)
        with counted() as unconverged:
            found = self._search(clusters, len(rows)).fit(rows)
        return _around(np.asarray(found.cluster_centers_, dtype=np.float32), rows, len(unconverged))

    def _search(self, clusters: int, rows: int) -> cluster.KMeans | cluster.MiniBatchKMeans:
        if self.form == "published":
            return cluster.MiniBatchKMeans(clusters, n_init=3, random_state=self.random_state)  # pyright: ignore[reportArgumentType]
        if rows <= self.minibatch_above:
            return cluster.KMeans(clusters, n_init=1, random_state=self.random_state)  # pyright: ignore[reportArgumentType]
        return cluster.MiniBatchKMeans(
            clusters,
            batch_size=4096,
            max_iter=10,
            max_no_improvement=None,  # pyright: ignore[reportArgumentType]
            n_init=1,  # pyright: ignore[reportArgumentType]
            reassignment_ratio=0,
            random_state=self.random_state,
        )


class KMedoids(Baseline):
    """Samples nearest to all others of their cluster: FasterPAM on Euclidean distances, from a random start.

    The distances of n rows take 4n² bytes, 1 GB for the default of 16,384 `points`; that is why there is one.
    """

    kind: Literal["kmedoids"] = "kmedoids"
    points: int | None = Field(default=1 << 14, ge=2)
    iterations: int = Field(default=100, ge=1)

    @property
    def sees_zeros(self) -> bool:
        return False

    def find(self, rows: Rows) -> Fitted:
        clusters = distinct(rows, self.features)
        distances = pairwise_distances(rows)
        state = np.random.RandomState(self.random_state)
        found = kmedoids.fasterpam(distances, clusters, max_iter=self.iterations, random_state=state, n_cpu=1)
        medoids = np.unique(rows[found.medoids.astype(np.int64)], axis=0)  # two equal ones, if it was stopped early
        return _around(medoids, rows, int(found.n_iter >= self.iterations))


def distinct(rows: Rows, enough: int) -> int:
    """How many different rows there are, counted up to `enough`."""
    seen: set[bytes] = set()
    for row in rows:
        seen.add(row.tobytes())
        if len(seen) == enough:
            break
    return len(seen)


def _around(centres: Rows, rows: Rows, unconverged: int) -> Fitted:
    lengths = np.linalg.norm(centres, axis=1)
    kept = lengths > VANISHED * np.linalg.norm(rows, axis=1).max()
    if not kept.any():
        raise Refusal(f"all {len(centres)} cluster centres are zero, as opposite rows cancel; accepted: more features")
    directions = torch.from_numpy(centres[kept] / lengths[kept, None]).float()[None]
    rule = Nearest(torch.from_numpy(lengths[kept]).float()[None])
    return Fitted(directions, rule, torch.zeros(rows.shape[1]), len(rows), unconverged)
