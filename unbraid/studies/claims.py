"""A claim: a sentence of a source study in our words, the study of ours that tests it, and the parts it is decided by.

Claims are data: `claims/SOURCE.toml` has an entry for each. A part of a claim names a measure with its arguments and
the rule that reads what it measured; `combine` says whether the claim needs all of its parts or any.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from unbraid.config import Config, JsonDict, check, read_toml, tagged
from unbraid.errors import UserError
from unbraid.metrics.sign_flips import Combine, least_replicates
from unbraid.studies.measures import MEASURES, Measure
from unbraid.studies.results import Where
from unbraid.studies.verdicts import RULES, Rule

if TYPE_CHECKING:
    AnyMeasure = Measure
    AnyRule = Rule
else:
    AnyMeasure = tagged(MEASURES)
    AnyRule = tagged(RULES)

FOLDER = Path(__file__).parent / "claims"
SOURCES = ("head-constraints", "gauge", "superposition", "mechanisms")
"""The source studies, in the order of the ledger."""
OF_PART = ("what", "control", "smallest")
"""Keys of a part that are neither its measure's nor its rule's."""


class Part(Config):
    """One thing that is measured for a claim."""

    what: str
    """What is measured, in a few words."""
    control: bool = False
    """Whether it shows only that the study could have shown the claim: unless it holds, the claim is undecided."""
    measure: AnyMeasure
    """The statistic, with the settings it compares."""
    rule: AnyRule
    """Which side of which line the claim is on."""
    smallest: float | None = Field(default=None, gt=0)
    """The smallest effect of interest, in the measure's unit; None: that of the metric's record in the catalog."""

    @model_validator(mode="after")
    def check_smallest(self) -> Self:
        if self.smallest is None and self.measure.smallest() is None:
            metric, kind = self.measure.metric, self.measure.to_dict()["kind"]
            raise ValueError(
                f"the measure '{kind}' of '{metric}' has no smallest effect of interest; accepted: smallest"
            )
        return self

    @property
    def smallest_effect(self) -> float:
        """The smallest effect of interest, in the measure's unit."""
        return self.smallest or self.measure.smallest() or 0.0


class Claim(Config):
    """One entry of the ledger, before it is measured."""

    id: str = Field(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")
    """The source study and two or three words: `superposition/right-ratio`."""
    statement: str
    """What the source claims, in one sentence of ours."""
    quote: str = Field(min_length=1)
    """The source's own sentence, verbatim; where it says so only in a table or in code, that."""
    published: str
    """The source's own figure, in words or quoted."""
    study: str
    """The configuration that tests it: the name of one that ships, or a path."""
    overrides: dict[str, Annotated[tuple[str, ...], Field(strict=False)]] = Field(default={})
    """Settings to change in the study, as PATH=VALUE, by scale."""
    parts: tuple[Part, ...] = Field(min_length=1, strict=False)
    """What is measured."""
    combine: Combine = "all"
    """How the parts combine, by what the words mean: all of them must hold, or any one is enough."""
    exploratory: str = ""
    """What was chosen after looking at results; nothing for a confirmatory claim."""

    @property
    def source(self) -> str:
        """The source study that makes the claim."""
        return self.id.partition("/")[0]

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        if all(part.control for part in self.parts):
            raise ValueError("all parts are controls, so that nothing is claimed; accepted: at least one that is none")
        return self

    @property
    def claimed(self) -> int:
        """How many parts say what the claim says; the others are controls."""
        return sum(not part.control for part in self.parts)

    @property
    def replicates(self) -> int:
        """How many replicates it needs at least before its test can decide."""
        return least_replicates(self.claimed)

    def selections(self) -> list[Where]:
        """Every selection of settings that its parts read."""
        return [where for part in self.parts for where in part.measure.selections()]


def load_claims(folder: Path = FOLDER) -> dict[str, Claim]:
    """Every claim of every source study, by its id."""
    claims: dict[str, Claim] = {}
    for source in SOURCES:
        path = folder / f"{source.replace('-', '_')}.toml"
        data = read_toml(path)
        if unknown := [name for name in data if name != "claims"]:
            raise UserError(f"{path}: there is no table '{unknown[0]}'; accepted: [[claims]]")
        for entry in data.get("claims", []):
            claim = _claim(entry, f"{path}, {entry.get('id', 'a claim without id')}")
            if claim.id in claims or claim.source != source:
                raise UserError(f"{path}: the id '{claim.id}' is taken, or does not begin with '{source}/'")
            claims[claim.id] = claim
    return claims


def _claim(entry: JsonDict, where: str) -> Claim:
    return check(Claim, {**entry, "parts": [_nested(part) for part in entry.get("parts", [])]}, where)


def _nested(part: JsonDict) -> JsonDict:
    """A part as its records want it: in TOML a measure and a rule stand beside their arguments in one flat table."""
    arguments = {name: value for name, value in part.items() if name not in (*OF_PART, "measure", "rule", "margin")}
    rule = {"kind": part.get("rule"), **({"margin": part["margin"]} if "margin" in part else {})}
    own = {name: part[name] for name in OF_PART if name in part}
    return {**own, "measure": {"kind": part.get("measure"), **arguments}, "rule": rule}
