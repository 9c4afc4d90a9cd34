"""Say what is measured of the dictionaries of a line, against the factors behind stories; and what verdicts mean."""

from unbraid.reports.wording import Wording

FACT = "a fact of the activations"
SHARES = "adds to 1 with the other verdicts"

LINE = {
    "recovery": Wording(
        "Recovery",
        "mean over planted concepts (each value of each factor) of φ, the Matthews correlation, with the one feature "
        "that tells it best; chance is a random dictionary of the same size",
    ),
    "few": Wording(
        "Recovery by a few",
        "the same of at most four features together: at least one of them fires; what is in two places is found again",
    ),
    "recovery_share": Wording("Recovery, chance to probe", "how far on the way from chance (0) to a linear probe (1)"),
    "probe": Wording("Probe", "mean φ of a linear probe for each concept: what the activations hold at all", FACT),
    "factors_recovered": Wording("Concepts recovered", "share of concepts with one feature of their own, φ ≥ 0.75"),
    "factors_split": Wording("Concepts split", "share told only by several features of their own together", SHARES),
    "factors_absorbed": Wording(
        "Concepts absorbed", "share told only together with features of something narrower", "lower is better"
    ),
    "factors_merged": Wording(
        "Concepts merged", "share told only by a feature that stands for others too", "lower is better"
    ),
    "factors_missed": Wording("Concepts missed", "share that nothing tells", "lower is better"),
    "features_match": Wording("Features that match", "share of learned features that tell one concept, best of all"),
    "features_duplicate": Wording(
        "Features that duplicate", "share that tell a concept that another feature tells better", SHARES
    ),
    "features_mixture": Wording(
        "Features that mix", "share that stand for two to four concepts at once", "lower is better"
    ),
    "features_spurious": Wording("Features that are spurious", "share that stand for no concept", "lower is better"),
    "features_dead": Wording("Features that are dead", "share that never fire", "lower is better"),
    "dci_disentanglement": Wording(
        "DCI disentanglement", "whether a feature tells one factor only; chance, the factors shuffled, is far from 0"
    ),
    "dci_completeness": Wording("DCI completeness", "whether one feature tells a factor; chance: factors shuffled"),
    "dci_informativeness": Wording(
        "DCI informativeness", "balanced accuracy of telling factors from all features; chance: factors shuffled"
    ),
    "mig": Wording(
        "MIG", "gap of information between a factor's best and second feature; 0 wherever a feature is learned twice"
    ),
    "sap": Wording("SAP", "gap of accuracy between a factor's best and second feature; as MIG"),
    "modularity": Wording(
        "Modularity", "whether a feature that says something says it of one factor; chance is far from 0"
    ),
}
"""In the order they are shown."""
LEADING = ("recovery", "recovery_share", "probe", "factors_recovered", "features_match", "dci_disentanglement")
"""What stands for the rest where there is little room."""
PREFIX, FEW, OVERALL = "recovery_", "few_", ("recovery", "recovery_share")

CONCEPTS = {
    "recovered": "one feature of its own",
    "split": "several features of its own, together",
    "absorbed": "only with features of something narrower",
    "merged": "only in a feature that says other concepts too",
    "missed": "nothing tells it",
}
FEATURES = {
    "match": "tells one concept, better than all others",
    "duplicate": "tells a concept that has a better feature",
    "mixture": "says several concepts at once",
    "spurious": "stands for no concept",
    "dead": "never fires",
}
"""What the verdicts mean, in a few words."""

CONCEPT_RULES = {
    "recovered": "Of the features that stand for it alone, the best has φ of at least 0.75.",
    "split": "No single feature is enough, but two to four that stand for it alone have φ of at least 0.75 together.",
    "absorbed": "The same together with one to four features of something narrower, which fire in place of its own.",
    "merged": "A feature for two to four concepts has it among them (φ of the union, and recall of this one, at least "
    "0.75), or its best feature has φ of at least 0.75 but stands for another concept.",
    "missed": "None of these.",
    "unjudged": "On, or off, at fewer than 5 tokens of either half of the stories held out; left out of the shares.",
}
FEATURE_RULES = {
    "match": "It stands for one concept, and of all features that do it has the largest φ.",
    "duplicate": "It stands for one concept, or a part of it, that has another match.",
    "mixture": "It stands for a union of two to four concepts.",
    "spurious": "It fires, and stands for no concept and no such union.",
    "dead": "It never fires on the stories held out.",
}
"""Of each verdict the rule, the first that applies."""


def factor_of(metric: str) -> str:
    """The factor whose recovery a score is, `recovery_place_of_mary` as `place of mary`; empty if it is another."""
    if metric in OVERALL or not metric.startswith(PREFIX):
        return ""
    return metric.removeprefix(PREFIX).replace("_", " ")


def of_a_factor(metric: str) -> Wording | None:
    """The words of the recovery of one factor; None where it is not one."""
    if metric.startswith(FEW):
        factor = metric.removeprefix(FEW).replace("_", " ")
        return Wording(f"Recovery of {factor} by a few", f"by at most four features, over the values of {factor} alone")
    factor = factor_of(metric)
    return Wording(f"Recovery of {factor}", f"the same over the values of {factor} alone") if factor else None
