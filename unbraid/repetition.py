"""How much a dictionary says twice: features that point alike, and features that fire alike.

Measured on no more than `SAMPLES` of the samples that score it; the formulas are in `metrics/redundancy.py` and
`dictionaries/coactivation`.
"""

from collections.abc import Callable, Sequence

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.coactivation import correlation
from unbraid.metrics.recovery import redundancy
from unbraid.worlds import Batch

SAMPLES = 8192


def repetition(
    directions: Float[Tensor, "m f d"], encode: Callable[[Batch], Codes], batches: Sequence[Batch]
) -> dict[str, Tensor]:
    codes = Codes.concatenate([encode(batch) for batch in batches])
    return {"redundancy": redundancy(directions, codes.counts()), "correlation": correlation(codes)}
