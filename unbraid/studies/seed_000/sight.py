"""Seed 000's claims on where heads look: whether constraints make attention right, and what silent heads were for."""

from collections.abc import Iterable

from unbraid.studies.claims import Claim, Part, difference
from unbraid.studies.measures import Level
from unbraid.studies.rules import Above, Below
from unbraid.studies.seed_000.constraints import CASES, NONE, STRONG, STUDY

MARGIN = 0.05
"""Of support: an increase below this is none to speak of."""
FORMS = ("published", "corrected")
EACH = ("orthogonality", "independence", "attention-entropy", "head-usage")


def _not_righter(name: str, when: str, study: str, cases: Iterable[str]) -> Claim:
    return Claim(
        id=f"000-attention-not-righter{name}",
        seed="000",
        statement=f"Constraints do not make attention more correct{when}.",
        published="heatmaps of one head on one story; no number",
        study=study,
        parts=tuple(
            difference(
                "support_best",
                f"best head's attention on the supporting facts, {case} minus none",
                {"case": case},
                NONE,
                Below(margin=MARGIN),
            )
            for case in cases
        ),
        figures=("cost-support_best-one-fact", "cost-support_best-counting"),
    )


SIGHT = (
    _not_righter("", "", STUDY, CASES),
    _not_righter(
        "-strong",
        ", at twenty times the seed's weights",
        STRONG,
        (f"{case}-{form}" for case in EACH for form in FORMS),
    ),
    Claim(
        id="000-sparse-not-right",
        seed="000",
        statement="Sparse attention is not correct attention: the entropy penalty narrows it, and sets nothing right.",
        published="said of heatmaps; no number",
        study=STRONG,
        parts=tuple(
            part
            for form in FORMS
            for part in (
                difference(
                    "spread",
                    f"effective keys over allowed ones, entropy penalty as {form} minus none",
                    {"case": f"attention-entropy-{form}"},
                    NONE,
                    Below(),
                ),
                difference(
                    "support_mass",
                    f"mean head's attention on the supporting facts, entropy penalty as {form} minus none",
                    {"case": f"attention-entropy-{form}"},
                    NONE,
                    Below(margin=MARGIN),
                ),
            )
        ),
        figures=("sight-one-fact", "sight-counting", "sight-coreference"),
    ),
    Claim(
        id="000-usage-silences",
        seed="000",
        statement="Sparsity of head usage silences heads that matter for some inputs.",
        published="said in words; no number",
        study=STRONG,
        parts=tuple(
            part
            for form in FORMS
            for part in (
                difference(
                    "usage_evenness",
                    f"evenness of use, head usage as {form} minus none",
                    {"case": f"head-usage-{form}"},
                    NONE,
                    Below(),
                ),
                Part(
                    what=f"drop of accuracy without the quietest head where it is needed most, as {form}, over chance",
                    statistic=Level(metric="quiet_drop", of={"case": f"head-usage-{form}"}),
                    rule=Above(),
                ),
            )
        ),
        figures=("heads-one-fact",),
    ),
)
