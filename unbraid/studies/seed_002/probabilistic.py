"""What seed 002 announces as its next step and never published: a probabilistic dictionary."""

from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Matched
from unbraid.studies.results import Where
from unbraid.studies.rules import Above

L1: Where = {"case": ("l1-weak", "l1-middle", "l1-strong")}
VARIATIONAL: Where = {"case": ("variational-weak", "variational-middle", "variational-strong")}
LITTLE_MORE = 1.2
"""Compared where a sample fires so many times the features that truly fire: both families pass through there."""

PROBABILISTIC = (
    Claim(
        id="002-variational",
        seed="002",
        statement="A variational dictionary recovers more than the L1 autoencoder at the same L0.",
        published="announced as part 3, which did not appear; no figure",
        study="002-variational",
        parts=(
            Part(
                what="MMCS, variational minus L1, at 1.2 × the true L0",
                statistic=Matched(metric="mmcs", of=VARIATIONAL, minus=L1, times=LITTLE_MORE),
                rule=Above(),
            ),
            Part(
                what="F1, variational minus L1, at 1.2 × the true L0",
                statistic=Matched(metric="f1", of=VARIATIONAL, minus=L1, times=LITTLE_MORE),
                rule=Above(),
            ),
        ),
        figures=("score-mmcs", "score-f1"),
    ),
)
