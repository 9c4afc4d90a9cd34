"""Describe activations, and predict how many features of a dictionary trained on them die.

    offset   = |mean| / root mean square length        1 where all rows are alike, 0 where they are centered
    rank     = (Σλ)² / Σλ²  and  exp(-Σ p log p), p = λ/Σλ, of the eigenvalues λ of the covariance
    outliers = dimensions whose root mean square is more than 6 times the median one

Dead features. A feature that starts as a random unit row w without bias sees w·x = w·mean + w·(x - mean). Over features
the first part is normal with deviation |mean|/√d; over samples the second has deviation s/√d, s² the variance summed
over dimensions. So with r = |mean|/s and z normal it fires in a share Φ(r z) of the samples, and of n samples

    P(it never fires) = E_z (1 - Φ(r z))ⁿ = P(it fires in all of them)

A relu that never fires has no gradient: it stays dead. One that always fires selects nothing. Both vanish as r → 0, and
both shares tend to one half as r grows: centering is the remedy. The same shares are also counted on these rows.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_ndtr
from torch.nn.functional import normalize

from unbraid.activations.normalization import Normalization, Normalize
from unbraid.activations.shards import Order, Shards
from unbraid.axes import Float, Tensor
from unbraid.randomness import stream

MAX_ROWS, RANDOM_FEATURES = 32_768, 1024
"""Rows that are read, and random features whose firing is counted on them."""
BLOCK_ROWS = 4096
OUTLIER_RATIO = 6.0
CENTER_FROM, SCALE_FROM = 0.1, 0.05
"""Offset from which centering is suggested, and how far from √d the mean length may be before scaling is."""
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


@dataclass(frozen=True)
class FiringShares:
    """The share of randomly initialized features that never fire, and of those that always do."""

    never: float
    always: float


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` finds; the formulas are at the top of this file."""

    rows: int
    """Rows that were read."""
    dimensions: int
    """Numbers in a row."""
    offset: float
    """Length of the mean over the root mean square length of a row."""
    outliers: dict[int, float]
    """Each outlier dimension, and its share of the variance."""
    participation: float
    """Effective rank: participation ratio of the covariance's eigenvalues."""
    entropy_rank: float
    """Effective rank: exponential of the entropy of the eigenvalues."""
    lengths: dict[float, float]
    """Quantiles of the lengths of rows."""
    mean_length: float
    """Mean length of a row."""
    ratio: float
    """r, the length of the mean over the standard deviation around it."""
    expected: FiringShares
    """By the formula."""
    counted: FiringShares
    """Counted on these rows."""
    after: FiringShares
    """Counted with the suggested normalization."""
    suggested: Normalize
    """The value of `normalize` to use."""


def diagnose(activations: Shards | Float[Tensor, "b d"]) -> Diagnosis:
    """Describe activations: how to normalize them, and how many features of a dictionary would die.

    Parameters
    ----------
    activations : Tensor, shape (b, d), or Shards
        Rows; or the shards that `capture` returned, of which up to 32,768 training rows are read.

    Returns
    -------
    Diagnosis
        `suggested`, the value of `normalize` to use; the `offset` of the mean, `outliers`, the effective rank
        (`participation`, `entropy_rank`), row lengths, and the shares of features that would never or always fire.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> rows = 5 + 3 * torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    >>> ub.diagnose(rows).suggested
    'center_and_scale'
    """
    return _diagnose_rows(first_rows(activations) if isinstance(activations, Shards) else activations)


def first_rows(shards: Shards) -> Float[Tensor, "b d"]:
    """Up to 32,768 training rows; every shard's checksum is verified."""
    for number in range(len(shards.manifest.shards)):
        shards.shard(number)
    order = Order(shards, "train", 0)
    return shards.activations(order.rows(0, min(len(order), MAX_ROWS)))


def _diagnose_rows(rows: Float[Tensor, "b d"]) -> Diagnosis:
    x = rows.double()
    mean, dimensions = x.mean(0), x.shape[1]
    centered = x - mean
    variances = centered.square().mean(0)
    spectrum = torch.linalg.eigvalsh(centered.T @ centered / len(x)).clamp_min(0)
    lengths, spread = x.norm(dim=1), float(variances.sum().sqrt())
    offset = offset_of(x)
    ratio = float(mean.norm()) / max(spread, 1e-300)
    suggested = suggest(
        offset, float(centered.norm(dim=1).mean() if offset > CENTER_FROM else lengths.mean()), dimensions
    )
    dead = expected_dead(ratio, len(x))
    return Diagnosis(
        rows=len(x),
        dimensions=dimensions,
        offset=offset,
        outliers=outliers(x, variances),
        participation=float(spectrum.sum() ** 2 / spectrum.square().sum().clamp_min(1e-300)),
        entropy_rank=_entropy_rank(spectrum),
        lengths={share: float(np.quantile(lengths.numpy(), share)) for share in QUANTILES},
        mean_length=float(lengths.mean()),
        ratio=ratio,
        expected=FiringShares(dead, dead),
        counted=count_firing(rows),
        after=count_firing(Normalization.of(rows, suggested).apply(rows)),
        suggested=suggested,
    )


def offset_of(x: Float[Tensor, "b d"]) -> float:
    """Length of the mean over the root mean square length of a row."""
    return float(x.mean(0).norm() / x.square().sum(1).mean().sqrt().clamp_min(1e-300))


def suggest_scale_free(x: Float[Tensor, "b d"]) -> Normalize:
    """What is suggested for these rows, and scaling in any case: no choice may depend on their scale."""
    return "center_and_scale" if offset_of(x) > CENTER_FROM else "scale"


def suggest(offset: float, mean_length: float, dimensions: int) -> Normalize:
    """Center where the mean is more than a tenth of the length; scale where the length is not √d already."""
    center, scale = offset > CENTER_FROM, abs(mean_length / math.sqrt(dimensions) - 1) > SCALE_FROM
    return "center_and_scale" if center and scale else "center" if center else "scale" if scale else "none"


def outliers(x: Float[Tensor, "b d"], variances: Float[Tensor, "d"]) -> dict[int, float]:
    """Dimensions that are much larger than the median one, the largest first."""
    sizes = x.square().mean(0).sqrt()
    large = (sizes > OUTLIER_RATIO * sizes.median()).nonzero()[:, 0]
    ordered = large[sizes[large].argsort(descending=True)].tolist()
    return {index: float(variances[index] / variances.sum().clamp_min(1e-300)) for index in ordered}


def expected_dead(ratio: float, samples: int) -> float:
    """The share of random features that never fire: E_z (1 - Φ(r z))ⁿ for a normal z, by quadrature."""
    z, step = np.linspace(-12, 12, 20_001, retstep=True)
    weights = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * step
    return float((weights * np.exp(samples * log_ndtr(-ratio * z))).sum())


def count_firing(rows: Float[Tensor, "b d"]) -> FiringShares:
    """The share of random unit directions that never fire on these rows, and of those that always do."""
    drawn = stream(0, "random features").standard_normal((RANDOM_FEATURES, rows.shape[1]), dtype=np.float32)
    directions = normalize(torch.from_numpy(drawn), dim=1)
    fired = torch.zeros(RANDOM_FEATURES, dtype=torch.int64)
    for block in rows.split(BLOCK_ROWS):
        fired += (block @ directions.T > 0).sum(0)
    return FiringShares(float((fired == 0).double().mean()), float((fired == len(rows)).double().mean()))


def _entropy_rank(spectrum: Float[Tensor, "d"]) -> float:
    shares = spectrum / spectrum.sum().clamp_min(1e-300)
    return float(torch.special.entr(shares).sum().exp())
