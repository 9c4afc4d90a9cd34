"""A claim: a sentence of a seed in our words, the study that tests it, and the parts it is decided by.

A part is a statistic of the study's results and the rule that reads its interval; a claim of several parts holds if
all hold and fails if one fails.
"""

from typing import TYPE_CHECKING

from pydantic import Field

from unbraid.config import Record, tagged
from unbraid.studies.measures import MEASURES, Difference, Measure
from unbraid.studies.results import Where
from unbraid.studies.rules import RULES, Rule

if TYPE_CHECKING:
    AnyMeasure = Measure
    AnyRule = Rule
else:
    AnyMeasure = tagged(MEASURES)
    AnyRule = tagged(RULES)


class Part(Record):
    """One thing that is measured for a claim: what it is in a few words, the statistic, and the rule."""

    what: str
    statistic: AnyMeasure
    rule: AnyRule


def difference(metric: str, what: str, of: Where, minus: Where, rule: Rule) -> Part:
    """The part that most claims have: one choice of settings minus another."""
    return Part(what=what, statistic=Difference(metric=metric, of=of, minus=minus), rule=rule)


class Claim(Record):
    """`published` is the seed's own figure in words; `figures` names the pictures of the study's report to look at."""

    id: str
    seed: str
    statement: str
    published: str
    study: str
    overrides: dict[str, tuple[str, ...]] = Field(default={})
    """Settings to change in the study, as PATH=VALUE, by scale."""
    parts: tuple[Part, ...] = Field(min_length=1)
    figures: tuple[str, ...] = Field(min_length=1)

    def selections(self) -> list[Where]:
        """Every choice of settings that its parts make."""
        return [where for part in self.parts for where in part.statistic.selections()]
