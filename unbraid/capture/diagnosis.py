"""What activations are like, and what that predicts for a dictionary trained on them.

    offset   = |mean| / root mean square length        1 where all rows are alike, 0 where they are centred
    rank     = (Σλ)² / Σλ²  and  exp(-Σ p log p), p = λ/Σλ, of the eigenvalues λ of the covariance
    outliers = dimensions whose root mean square is more than 6 times the median one

Dead features. A feature that starts as a random unit row w without bias sees w·x = w·mean + w·(x - mean). Over features
the first part is normal with deviation |mean|/√d; over samples the second has deviation s/√d, s² the variance summed
over dimensions. So with r = |mean|/s and z normal it fires in a share Φ(r z) of the samples, and of n samples

    P(it never fires) = E_z (1 - Φ(r z))ⁿ = P(it fires in all of them)

A relu that never fires has no gradient: it stays dead. One that always fires selects nothing. Both vanish as r → 0, and
both shares tend to one half as r grows: centring is the remedy. The same shares are also counted, on these rows.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_ndtr
from torch.nn.functional import normalize

from unbraid.axes import Float, Tensor
from unbraid.capture.normalisation import Kind, Normalisation
from unbraid.capture.order import Order
from unbraid.capture.shards import Shards
from unbraid.randomness import stream

MOST_ROWS, FEATURES = 32_768, 1024
"""So many rows are looked at, and so many random features."""
OUTLYING = 6.0
CENTRE_FROM, SCALE_FROM = 0.1, 0.05
"""An offset from which centring is suggested, and how far from √d the mean length may be before scaling is."""
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


@dataclass(frozen=True)
class Silence:
    """What share of features that start at random never fires, and what share always does."""

    never: float
    always: float


@dataclass(frozen=True)
class Diagnosis:
    rows: int
    dimensions: int
    offset: float
    outliers: dict[int, float]
    """Each outlying dimension, and its share of the variance."""
    participation: float
    entropy_rank: float
    lengths: dict[float, float]
    mean_length: float
    ratio: float
    """r, the length of the mean over the spread around it."""
    expected: Silence
    counted: Silence
    after: Silence
    """Counted with the suggested normalisation."""
    suggested: Kind


def diagnose(shards: Shards) -> Diagnosis:
    """Look at every shard's checksum, and at some rows of them all."""
    for number in range(len(shards.manifest.shards)):
        shards.shard(number)
    order = Order(shards, "train", 0)
    return diagnose_rows(shards.activations(order.rows(0, min(len(order), MOST_ROWS))))


def diagnose_rows(rows: Float[Tensor, "b d"]) -> Diagnosis:
    x = rows.double()
    mean, dimensions = x.mean(0), x.shape[1]
    centred = x - mean
    variances = centred.square().mean(0)
    spectrum = torch.linalg.eigvalsh(centred.T @ centred / len(x)).clamp_min(0)
    lengths, spread = x.norm(dim=1), float(variances.sum().sqrt())
    offset = float(mean.norm() / x.square().sum(1).mean().sqrt().clamp_min(1e-300))
    ratio = float(mean.norm()) / max(spread, 1e-300)
    suggested = suggest(
        offset, float(centred.norm(dim=1).mean() if offset > CENTRE_FROM else lengths.mean()), dimensions
    )
    silent = expected_silence(ratio, len(x))
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
        expected=Silence(silent, silent),
        counted=count_silence(rows),
        after=count_silence(Normalisation.of(rows, suggested).apply(rows)),
        suggested=suggested,
    )


def suggest(offset: float, mean_length: float, dimensions: int) -> Kind:
    """Centre where the mean is more than a tenth of the length; scale where the length is not √d already."""
    centre, scale = offset > CENTRE_FROM, abs(mean_length / math.sqrt(dimensions) - 1) > SCALE_FROM
    return "both" if centre and scale else "centre" if centre else "scale" if scale else "none"


def outliers(x: Float[Tensor, "b d"], variances: Float[Tensor, "d"]) -> dict[int, float]:
    """Dimensions that are much larger than the median one, the largest first."""
    sizes = x.square().mean(0).sqrt()
    found = (sizes > OUTLYING * sizes.median()).nonzero()[:, 0]
    ordered = found[sizes[found].argsort(descending=True)].tolist()
    return {index: float(variances[index] / variances.sum().clamp_min(1e-300)) for index in ordered}


def expected_silence(ratio: float, samples: int) -> float:
    """E_z (1 - Φ(r z))ⁿ for a normal z, by quadrature."""
    z, step = np.linspace(-12, 12, 20_001, retstep=True)
    weights = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * step
    return float((weights * np.exp(samples * log_ndtr(-ratio * z))).sum())


def count_silence(rows: Float[Tensor, "b d"]) -> Silence:
    """How many of some random unit rows never fire, and how many always do."""
    drawn = stream(0, "random features").standard_normal((FEATURES, rows.shape[1]), dtype=np.float32)
    directions = normalize(torch.from_numpy(drawn), dim=1)
    fired = torch.zeros(FEATURES, dtype=torch.int64)
    for part in rows.split(4096):
        fired += (part @ directions.T > 0).sum(0)
    return Silence(float((fired == 0).double().mean()), float((fired == len(rows)).double().mean()))


def _entropy_rank(spectrum: Float[Tensor, "d"]) -> float:
    shares = spectrum / spectrum.sum().clamp_min(1e-300)
    return float(torch.special.entr(shares).sum().exp())
