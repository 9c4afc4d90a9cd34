"""Seed 002's claims about its grid of autoencoders: what L1, the ratio and training do to recovery."""

from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Difference, Level
from unbraid.studies.results import Where
from unbraid.studies.rules import Above, Below, Within

STUDY = "002-claims"
UNDER: Where = {"ratio": 0.25}
RIGHT: Where = {"ratio": 1}
OVER: Where = {"ratio": 8}
WEAK: Where = {"mechanisms.sparsity.weight": 0.0316}
STRONG: Where = {"mechanisms.sparsity.weight": 0.178}

AUTOENCODERS = (
    Claim(
        id="002-l1-improves",
        seed="002",
        statement="A stronger L1 cost recovers more features, up to the strongest tried.",
        published="MMCS .953 → .979 (uncorrelated), .818 → .966 (correlated) from L1 .03 to .18 at ratio 1",
        study=STUDY,
        parts=(
            Part(
                what="MMCS at ratio 1, L1 .178 minus .0316",
                statistic=Difference(metric="mmcs", of=RIGHT | STRONG, minus=RIGHT | WEAK),
                rule=Above(),
            ),
            Part(
                what="MMCS at ratio 8, L1 .178 minus .0316",
                statistic=Difference(metric="mmcs", of=OVER | STRONG, minus=OVER | WEAK),
                rule=Above(),
            ),
        ),
        figures=("matrix-mmcs-1", "matrix-mmcs-2"),
    ),
    Claim(
        id="002-right-ratio",
        seed="002",
        statement="Recovery is best when the dictionary has about as many entries as there are features.",
        published="MMCS at L1 .03: .385 (ratio ¼), .953 (ratio 1), .907 (ratio 4), .495 (ratio 16)",
        study=STUDY,
        parts=(
            Part(
                what="MMCS, ratio 1 minus ratio ¼",
                statistic=Difference(metric="mmcs", of=RIGHT, minus=UNDER),
                rule=Above(),
            ),
            Part(
                what="MMCS, ratio 1 minus ratio 8",
                statistic=Difference(metric="mmcs", of=RIGHT, minus=OVER),
                rule=Above(),
            ),
        ),
        figures=("matrix-mmcs-1", "matrix-mmcs-2"),
    ),
    Claim(
        id="002-dead-grow",
        seed="002",
        statement="Oversized dictionaries keep growing dead entries to the end; right-sized ones plateau.",
        published="dead at the end: about 1,400 of 4,096, 5,500 of 16,384, still rising; 0 to 15 of 512",
        study=STUDY,
        parts=(
            Part(
                what="dead entries gained in the second half of training, ratio 8",
                statistic=Level(metric="dead_growth", of=OVER),
                rule=Above(),
            ),
            Part(
                what="the same, ratio 1 (2 entries are 1.6 % of the small world's)",
                statistic=Level(metric="dead_growth", of=RIGHT),
                rule=Within(margin=2),
            ),
        ),
        figures=("dead-steps-2", "dead-steps-4"),
    ),
    Claim(
        id="002-undersized-unlearn",
        seed="002",
        statement="Undersized dictionaries unlearn more of the features they had found.",
        published="in words and curves only, without figures that can be read",
        study=STUDY,
        parts=(
            Part(
                what="true features lost again between checks, ratio ¼ minus ratio 1",
                statistic=Difference(metric="unlearned_total", of=UNDER, minus=RIGHT),
                rule=Above(),
            ),
        ),
        figures=("fate-unlearned-1", "fate-unlearned-2"),
    ),
    Claim(
        id="002-still-learned",
        seed="002",
        statement="The number of features still learned by the same entry grows with training.",
        published="rises to about 500 of 512 for 512 to 4,096 entries at L1 .18",
        study=STUDY,
        parts=(
            Part(
                what="gained in the second half of training, ratio 1",
                statistic=Level(metric="still_growth", of=RIGHT),
                rule=Above(),
            ),
            Part(
                what="gained in the second half of training, ratio 8",
                statistic=Level(metric="still_growth", of=OVER),
                rule=Above(),
            ),
        ),
        figures=("fate-still-1", "fate-still-2"),
    ),
    Claim(
        id="002-correlated-tradeoff",
        seed="002",
        statement="Correlated data are reconstructed better, and their features recovered slightly worse.",
        published="at L1 .18: error .0004 against .00165 (ratio ¼); MMCS .966 against .979 (ratio 1)",
        study=STUDY,
        parts=(
            Part(
                what="error at ratio ¼, L1 .178, correlated minus uncorrelated",
                statistic=Difference(
                    metric="reconstruction_error",
                    of={"case": "correlated"} | UNDER | STRONG,
                    minus={"case": "uncorrelated"} | UNDER | STRONG,
                ),
                rule=Below(),
            ),
            Part(
                what="MMCS at ratio 1, L1 .178, correlated minus uncorrelated",
                statistic=Difference(
                    metric="mmcs",
                    of={"case": "correlated"} | RIGHT | STRONG,
                    minus={"case": "uncorrelated"} | RIGHT | STRONG,
                ),
                rule=Below(),
            ),
        ),
        figures=("matrix-reconstruction-error-1", "matrix-reconstruction-error-2", "matrix-mmcs-1", "matrix-mmcs-2"),
    ),
)
