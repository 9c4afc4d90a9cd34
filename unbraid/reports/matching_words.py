"""What the verdicts of concept–feature matching mean, and which scores lead where factors were planted."""

from unbraid.metrics.catalog import parts

LEADING = ("phi", "phi_share", "probe", "factors_recovered", "features_match", "dci_disentanglement")
"""The scores to show where there is little room."""

CONCEPTS = {
    "recovered": "one feature of its own",
    "split": "several features of its own, together",
    "absorbed": "only with features of something narrower",
    "merged": "only in a feature that matches other concepts too",
    "missed": "no feature matches it",
}
FEATURES = {
    "match": "the best feature of one concept",
    "duplicate": "matches a concept that has a better feature",
    "mixture": "matches several concepts at once",
    "spurious": "matches no concept",
    "dead": "never fires",
}
"""What the verdicts mean, in a few words."""

CONCEPT_RULES = {
    "recovered": "Of the features assigned to it alone, the best has φ of at least 0.75.",
    "split": "No single feature is enough, but two to four assigned to it alone have φ of at least 0.75 together.",
    "absorbed": "The same together with one to four features of something narrower, which fire in place of its own.",
    "merged": "A feature for two to four concepts has it among them (φ of the union, and recall of this one, at least "
    "0.75), or its best feature has φ of at least 0.75 but is assigned to another concept.",
    "missed": "None of these.",
    "unjudged": "On, or off, at fewer than 5 tokens of either half of the held-out stories; left out of the shares.",
}
FEATURE_RULES = {
    "match": "It is assigned to one concept, and of all features that are it has the largest φ.",
    "duplicate": "It is assigned to one concept, or a part of it, that has another match.",
    "mixture": "It is assigned to a union of two to four concepts.",
    "spurious": "It fires, and is assigned to no concept and no such union.",
    "dead": "It never fires on the held-out stories.",
}
"""Of each verdict the rule, the first that applies."""


def factor_of(metric: str) -> str:
    """The factor whose φ a score is, `phi_place_of_mary` as `place of mary`; empty if it is another."""
    family, factor = parts(metric)
    return factor if family == "phi_<factor>" else ""
