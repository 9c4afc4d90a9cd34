"""How well a few features say a concept together: φ of "at least one of them fires beyond its threshold".

Features are added one by one on the rows to fit on, each the one that raises φ most, at most MOST and while φ rises by
GAIN; each is cut where it alone says the concept best. What is reported is measured on the other rows.
"""

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float
from unbraid.metrics.association import Association, phi, says
from unbraid.metrics.readings import GAIN, MOST

CANDIDATES = 64
"""Of the features of a concept those that alone say it best."""


def best_few(
    codes: sparse.csr_array, concepts: Bool[np.ndarray, "n c"], fit: Bool[np.ndarray, "n"], found: Association
) -> Float[np.ndarray, "c"]:
    """φ of each concept by at most MOST features together; NaN for a concept that is not judged."""
    columns, reached = sparse.csc_array(codes), np.full(concepts.shape[1], np.nan)
    ranked = np.argsort(-found.fit.phi(), axis=1, kind="stable")[:, :CANDIDATES]
    for c in np.flatnonzero(found.judged):
        cut = found.thresholds[c, ranked[c]], found.sides[c, ranked[c]]
        said, on = sparse.csc_array(says(sparse.csr_array(columns[:, ranked[c]]), *cut)), concepts[:, c]
        chosen = gather(sparse.csr_array(said[fit].T), on[fit], np.zeros(int(fit.sum()), bool))
        reached[c] = union_phi(np.asarray(said[:, chosen].sum(1) > 0)[~fit], on[~fit])
    return reached


def gather(said: sparse.csr_array, on: Bool[np.ndarray, "b"], covered: Bool[np.ndarray, "b"]) -> list[int]:
    """Features, one a row of `said`, added one by one to what is covered."""
    chosen: list[int] = []
    now = union_phi(covered, on)
    while len(chosen) < min(MOST, len(said.indptr) - 1):
        free = ~covered
        true = (covered & on).sum() + said @ (free & on).astype(np.float32)
        heights = phi(true, covered.sum() + said @ free.astype(np.float32), on.sum(), len(on))
        if heights.max() < now + GAIN:
            break
        chosen.append(int(heights.argmax()))
        now = float(heights.max())
        covered = covered | (said[[chosen[-1]]].toarray()[0] > 0)
    return chosen


def union_phi(covered: Bool[np.ndarray, "b"], on: Bool[np.ndarray, "b"]) -> float:
    return float(phi((covered & on).sum(), covered.sum(), on.sum(), len(on)))
