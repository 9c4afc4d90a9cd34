"""Seed 003's claims where the truth is planted: a hierarchy of features, every mechanism as corrected unless said.

Nothing was ever trained in the seed, so its claims are words, and the figures of the paper made from it are invented.
"""

from unbraid.studies.claims import Claim, Part, difference
from unbraid.studies.measures import EqualL0, Nearer
from unbraid.studies.results import Where
from unbraid.studies.rules import Above, Below, Rule

LADDER, PAIRS = "003-ladder", "003-pairs"
PLAIN: Where = {"case": "plain"}
ALL: Where = {"case": "all"}
NO_FIGURE = "none: zero steps were trained"


def alone(mechanism: str) -> Where:
    """A mechanism with the partner it needs, and nothing else."""
    return {"case": f"alone-{mechanism}"}


def at_equal_l0(metric: str, what: str, of: Where, minus: Where, rule: Rule) -> Part:
    return Part(what=f"{what}, at equal L0", statistic=EqualL0(metric=metric, of=of, minus=minus), rule=rule)


ORTHOGONALITY = (
    Claim(
        id="003-orthogonality-correlation",
        seed="003",
        statement="Pushing the most co-active pairs apart lowers the correlation of features.",
        published=f"{NO_FIGURE}; its paper's .18 → .15 is invented",
        study=LADDER,
        parts=(
            at_equal_l0("correlation", "correlation, penalty minus plain", alone("pair_orthogonality"), PLAIN, Below()),
        ),
        figures=("adds-correlation",),
    ),
    Claim(
        id="003-orthogonality-absorption",
        seed="003",
        statement="Pushing the most co-active pairs apart reduces absorption at equal L0.",
        published=NO_FIGURE,
        study=LADDER,
        parts=(
            at_equal_l0("absorption", "absorption, penalty minus plain", alone("pair_orthogonality"), PLAIN, Below()),
        ),
        figures=("adds-absorption",),
    ),
    Claim(
        id="003-orthogonality-recovery",
        seed="003",
        statement="Pushing the most co-active pairs apart disentangles: more of the true features are found.",
        published=NO_FIGURE,
        study=LADDER,
        parts=(at_equal_l0("mmcs", "MMCS, penalty minus plain", alone("pair_orthogonality"), PLAIN, Above()),),
        figures=("adds-recovered",),
    ),
    Claim(
        id="003-orthogonality-published",
        seed="003",
        statement="As coded, the penalty on raw co-activation lowers the correlation of features.",
        published=f"{NO_FIGURE}; its paper's .18 → .15 is invented",
        study=LADDER,
        parts=(
            at_equal_l0(
                "correlation",
                "correlation, penalty as published minus plain",
                {"case": "published-pair_orthogonality"},
                PLAIN,
                Below(),
            ),
        ),
        figures=("adds-correlation",),
    ),
    Claim(
        id="003-adaptive-tau",
        seed="003",
        statement="A τ that adapts beats a fixed one.",
        published=f"{NO_FIGURE}; its paper's .15 → .12 in correlation is invented",
        study=PAIRS,
        parts=(
            at_equal_l0(
                "correlation",
                "correlation, adaptive minus fixed τ",
                {"case": "adaptive-1-in-1000"},
                {"case": "fixed-1-in-1000"},
                Below(),
            ),
            at_equal_l0(
                "mmcs",
                "MMCS, adaptive minus fixed τ",
                {"case": "adaptive-1-in-1000"},
                {"case": "fixed-1-in-1000"},
                Above(),
            ),
        ),
        figures=("pareto-l0-recovered",),
    ),
    Claim(
        id="003-adaptive-tau-published",
        seed="003",
        statement="As coded, where τ is a weight, a τ that adapts beats a fixed one.",
        published=f"{NO_FIGURE}; its paper's .15 → .12 in correlation is invented",
        study=PAIRS,
        parts=(
            at_equal_l0(
                "correlation",
                "correlation, adaptive minus fixed τ, as published",
                {"case": "published-adaptive"},
                {"case": "published-fixed"},
                Below(),
            ),
            at_equal_l0(
                "mmcs",
                "MMCS, adaptive minus fixed τ, as published",
                {"case": "published-adaptive"},
                {"case": "published-fixed"},
                Above(),
            ),
        ),
        figures=("pareto-l0-recovered",),
    ),
    Claim(
        id="003-dynamic-pairs",
        seed="003",
        statement="Selecting as many pairs as stand out beats selecting a fixed share.",
        published=f"{NO_FIGURE}; its paper's .12 → .10 in correlation is invented",
        study=PAIRS,
        parts=(
            at_equal_l0(
                "correlation",
                "correlation, dynamic minus .1 % of pairs",
                {"case": "fixed-dynamic"},
                {"case": "fixed-1-in-1000"},
                Below(),
            ),
            at_equal_l0(
                "mmcs",
                "MMCS, dynamic minus .1 % of pairs",
                {"case": "fixed-dynamic"},
                {"case": "fixed-1-in-1000"},
                Above(),
            ),
        ),
        figures=("pareto-l0-recovered",),
    ),
)

OTHERS = (
    Claim(
        id="003-pruning-redundancy",
        seed="003",
        statement="Starting correlated features anew makes a dictionary repeat itself less.",
        published=NO_FIGURE,
        study=LADDER,
        parts=(
            at_equal_l0("redundancy", "redundancy, pruning minus plain", alone("correlation_pruning"), PLAIN, Below()),
        ),
        figures=("adds-redundancy",),
    ),
    Claim(
        id="003-importance-protects",
        seed="003",
        statement="Tracking importance keeps pruning from removing useful features.",
        published=NO_FIGURE,
        study=LADDER,
        parts=(
            at_equal_l0(
                "recovered",
                "share recovered, pruning with importance minus without",
                alone("momentum_importance"),
                alone("correlation_pruning"),
                Above(),
            ),
        ),
        figures=("adds-recovered",),
    ),
    Claim(
        id="003-adaptive-l1-target",
        seed="003",
        statement="An L1 weight that adapts holds the wanted share of active features.",
        published="target .1, which the code compares with the share of zeros; trained zero steps",
        study=LADDER,
        parts=(
            Part(
                what="distance of the active share from .02, adaptive minus plain",
                statistic=Nearer(metric="density", of=alone("adaptive_l1"), minus=PLAIN, target=0.02),
                rule=Below(),
            ),
        ),
        figures=("pareto-l0-recovered",),
    ),
    Claim(
        id="003-adaptive-l1-published",
        seed="003",
        statement="As coded, the adaptive L1 weight holds its target of .1.",
        published="target .1, which the code compares with the share of zeros; trained zero steps",
        study=LADDER,
        parts=(
            Part(
                what="distance of the active share from .1, as published minus plain",
                statistic=Nearer(metric="density", of={"case": "published-adaptive_l1"}, minus=PLAIN, target=0.1),
                rule=Below(),
            ),
        ),
        figures=("pareto-l0-recovered",),
    ),
    Claim(
        id="003-inhibition-specialises",
        seed="003",
        statement="Lateral inhibition makes codes sparser and features more different.",
        published=NO_FIGURE,
        study=LADDER,
        parts=(
            difference(
                "training_l0",
                "L0 of the codes as inhibited, in training, inhibition minus plain, at equal L1",
                alone("lateral_inhibition"),
                PLAIN,
                Below(),
            ),
            at_equal_l0(
                "correlation", "correlation, inhibition minus plain", alone("lateral_inhibition"), PLAIN, Below()
            ),
        ),
        figures=("adds-correlation",),
    ),
    Claim(
        id="003-neighbourhoods",
        seed="003",
        statement="Neighbourhoods by co-activation make features more independent than fixed ones.",
        published=NO_FIGURE,
        study=LADDER,
        parts=(
            at_equal_l0(
                "correlation",
                "correlation, adaptive neighbourhoods minus nearest directions",
                alone("adaptive_neighbourhoods"),
                alone("lateral_inhibition"),
                Below(),
            ),
        ),
        figures=("adds-correlation",),
    ),
    Claim(
        id="003-reallocation-dead",
        seed="003",
        statement="Starting idle features anew leaves fewer dead ones.",
        published=f"{NO_FIGURE}; its paper's use of 82 % → 95 % is invented",
        study=LADDER,
        parts=(at_equal_l0("dead", "dead features, reallocation minus plain", alone("reallocation"), PLAIN, Below()),),
        figures=("adds-dead",),
    ),
    Claim(
        id="003-all-nine",
        seed="003",
        statement="All nine together: features less correlated, fewer dead, more of the truth.",
        published="its paper's correlation .18 → .09 and use 82 % → 95 % are invented",
        study=LADDER,
        parts=(
            at_equal_l0("correlation", "correlation, all minus plain", ALL, PLAIN, Below()),
            at_equal_l0("dead", "dead features, all minus plain", ALL, PLAIN, Below()),
            at_equal_l0("mmcs", "MMCS, all minus plain", ALL, PLAIN, Above()),
        ),
        figures=("adds-recovered",),
    ),
)

PLANTED: tuple[Claim, ...] = (*ORTHOGONALITY, *OTHERS)
