"""Seed 001's claims on language: gauge attention beside a plain transformer of its size, and what free energy adds."""

from unbraid.studies.claims import Claim, Part
from unbraid.studies.measures import Relative
from unbraid.studies.rules import Below, Rule

STUDY = "001-language"
ALIKE = 0.05
"""Of perplexity: by less than this share more a model predicts as well."""
FIGURES = ("forest-perplexity", "sharpness-by-irrep")


def _over(of: str, minus: str, rule: Rule) -> Part:
    return Part(
        what=f"perplexity of {of} over {minus}, less 1",
        statistic=Relative(metric="perplexity", of={"case": of}, minus={"case": minus}),
        rule=rule,
    )


LANGUAGE = (
    Claim(
        id="001-matches-plain",
        seed="001",
        statement="Gauge attention predicts characters as well as a plain transformer of equal size.",
        published="perplexity 22.36 (.1) with 6,531 numbers against 22.6 (.2) with 8,688",
        study=STUDY,
        parts=(
            _over("gauge", "plain", Below(margin=ALIKE)),
            _over("tensor-gauge", "plain-as-large", Below(margin=ALIKE)),
        ),
        figures=FIGURES,
    ),
    Claim(
        id="001-free-energy-helps",
        seed="001",
        statement="Belief updates down the free energy predict better than gauge attention alone.",
        published="perplexity 18.06 (.2) against 22.36 (.1)",
        study=STUDY,
        parts=(
            _over("gauge-free-energy", "gauge", Below()),
            _over("tensor-gauge-free-energy", "tensor-gauge", Below()),
        ),
        figures=FIGURES,
    ),
)
