"""Where reports draw the line between two words for a score.

A report sees no metric, so that these stand in `metrics/recovery`, `metrics/tracking` and `metrics/uniformity` too;
`tests/reports/test_thresholds.py` holds them against those.
"""

FOUND = 0.9
"""The cosine from which a true feature counts as found."""
MEDIUM, SHARP = 0.05, 0.10
"""A row_std above which the seed calls a head so."""


def classify(row_std: float) -> str:
    """The seed's word for a head of this row_std."""
    return "SHARP" if row_std > SHARP else "MEDIUM" if row_std > MEDIUM else "UNIFORM"
