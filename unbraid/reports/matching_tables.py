"""Tables of concept–feature matching: the rules, shares with intervals, and the verdict on every concept."""

from collections.abc import Mapping, Sequence

from unbraid.config import JsonDict
from unbraid.reports import markup
from unbraid.reports.markup import Group
from unbraid.reports.matching_words import CONCEPT_RULES, CONCEPTS, FEATURE_RULES, FEATURES
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.score_tables import score_table
from unbraid.reports.words import count, number

SHOWN = 2
"""Settings of which every concept is shown."""
SHORT = 12
"""Concepts that need not be folded away."""
MOST = 6
"""Features that are named of a concept."""


def matching_tables(results: RunResults, settings: Sequence[Setting]) -> str:
    metrics = [*(f"factors_{name}" for name in CONCEPTS), *(f"features_{name}" for name in FEATURES)]
    shares = markup.fold("These shares with their intervals and chance", score_table(settings, metrics))
    each = [concepts(one, card["concepts"]) for one in results.settings[:SHOWN] if (card := results.card(one))]
    return rules() + shares + "".join(each)


def rules() -> str:
    """One sentence a verdict, the first that applies."""
    groups = [_rules("A concept is", CONCEPT_RULES), _rules("A learned feature is", FEATURE_RULES)]
    table = markup.table("The rules", ("verdict", "when (the first that applies)"), groups, sentences=RULE)
    return markup.fold("The rules behind the verdicts", table)


RULE = ("when (the first that applies)",)


def _rules(heading: str, said: Mapping[str, str]) -> Group:
    return Group([[verdict, rule] for verdict, rule in said.items()], heading)


def concepts(setting: Setting, found: Sequence[JsonDict]) -> str:
    """Every concept of a setting's first replicate, factor by factor."""
    factors = dict.fromkeys(one["factor"] for one in found)
    groups = [Group([_concept(one) for one in found if one["factor"] == factor], factor) for factor in factors]
    head = ("concept", "verdict", "best φ", "probe's φ", "on at", "features")
    kinds = ("verdict", "features")
    table = markup.table(f"Every concept with {setting.label}", head, groups, sentences=kinds)
    name = f"Every concept, one by one: {setting.label}, first replicate ({count(len(found), 'concept')})"
    return markup.fold(name, table) if len(found) > SHORT else markup.paragraph(name) + table


def _concept(one: JsonDict) -> list[str]:
    named = [str(feature) for feature in one["features"][:MOST]]
    more = [f"and {len(one['features']) - MOST} more"] if len(one["features"]) > MOST else []
    nearest = "nearest: " if named and one["verdict"] == "missed" else ""
    return [
        f"{one['factor']} = {one['value']}",
        one["verdict"],
        number("phi", one["phi"]),
        number("phi", one["ceiling"]),
        f"{100 * one['share']:.1f} %",
        nearest + ", ".join([*named, *more]) if named else "–",
    ]
