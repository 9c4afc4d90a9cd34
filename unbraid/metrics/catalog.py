"""The metric catalog: what is known of every metric, one record each; and docs/metrics.md, which is printed from it.

    python -m unbraid.metrics.catalog > docs/metrics.md

Everything that has to know a fact about a metric reads it here: scoring, summaries, reports. There is no torch in this
file, so that reports may read it. A new metric is a function in this package and an entry in `catalog.toml`.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, get_args

FOUND = 0.9
"""The cosine from which a true feature counts as found."""
MEDIUM, SHARP = 0.05, 0.10
"""The row_std above which the gauge study calls a head so."""

CONCEPT_FATES = ("recovered", "split", "merged", "absorbed", "missed")
"""What can become of a planted concept in a dictionary; tables hold the position in this list."""

Better = Literal["higher", "lower", "neither"]
Scope = Literal["own", "model", "activations"]

OF_PLUGINS = "Plugins"
"""The section of metrics that are not built in."""
RANDOM = "random dictionaries of the same size and firing rule"
ORACLE = "an oracle of the same size"
NO_REFERENCE = "none: there is no record of it"
NO_CONVENTION = "none: there is no convention, judge by the interval"
REFERENCES = {
    "RANDOM": RANDOM,
    "SHUFFLED": "the same code with the rows of all factors permuted together",
    "UNTRAINED": "the same model before training",
    "COUNTING": "counting tokens (unigrams) in the training part",
    "ORACLE": ORACLE,
    "PROBE": "a linear probe on the same activations, one a concept",
    "SIMILAR": "the same with other features of the dictionary that fire about as often",
    "PATCHED": "the other story's activations at the same tokens (patching)",
    "FACT": "none: a fact, not a goal",
    "BEST": "none: the best that is possible here is not known",
    "TRACKED": "none: it depends on how often training is checked",
    "SHARES": "none: read it beside the other verdicts",
}
"""What words in capitals stand for in `catalog.toml`, under chance, ceiling and why_none."""
TEMPLATE, RECORDS = (Path(__file__).with_name(name) for name in ("metrics.md", "catalog.toml"))


@dataclass(frozen=True)
class Metric:
    """What is known of a metric. The name of a family ends in its placeholder: `phi_<factor>`."""

    name: str
    label: str
    sentence: str
    section: str
    """Where it stands in docs/metrics.md."""
    chance: str = NO_REFERENCE
    """What a method that knows nothing scores, or why there is no such number."""
    ceiling: str = NO_REFERENCE
    """The best that can be scored, or why that is not known."""
    unit: str = "share"
    better: Better = "higher"
    reading: str = ""
    """How to read its direction, where "higher is better" is not enough."""
    least_difference: float | None = None
    """The smallest effect of interest, stated before looking: less is no effect. None where `why_none` says why there
    is none; a claim states its own then."""
    least_reason: str = "one hundredth of its range"
    """Why that much."""
    why_none: str = NO_CONVENTION
    format: str = ".3f"
    formula: str = ""
    pitfalls: str = ""
    compared: bool = False
    """Whether settings are compared by it."""
    scope: Scope = "own"
    """A score of the model, or of its activations, counts once a model, however many dictionaries learned from it."""
    ceiling_of: str = ""
    """The metric whose ceiling it is held against, where it is not its own."""
    unbounded: tuple[str, str] | None = None
    """Sentence and reading where no truth was planted, and there is no ceiling."""

    @property
    def direction(self) -> str:
        """Which way is better, in a few words."""
        plain = {"higher": "higher is better", "lower": "lower is better", "neither": "a fact, not a goal"}
        return self.reading or plain[self.better]

    @property
    def link(self) -> str:
        """Where its formula and pitfalls stand."""
        anchor = "".join(letter for letter in self.name.lower() if letter.isalnum() or letter in "_-")
        return f"docs/metrics.md#{anchor}"


def _read() -> dict[str, Metric]:
    sections = tomllib.loads(RECORDS.read_text(encoding="utf-8"))
    return {name: _metric(name, section, table) for section, of in sections.items() for name, table in of.items()}


def _metric(name: str, section: str, table: dict[str, Any]) -> Metric:
    written = {key: table[key] for key in ("chance", "ceiling", "why_none") if key in table}
    references = {key: REFERENCES.get(text, text) for key, text in written.items()}
    unbounded = {"unbounded": tuple(table["unbounded"])} if "unbounded" in table else {}
    return Metric(**{"name": name, "section": section, **table, **references, **unbounded})


METRICS = _read()
"""Every record by its name, in the order they are shown; a family by its name with the placeholder."""
_FAMILIES = sorted((name.partition("<")[0], name) for name in METRICS if "<" in name)[::-1]
"""By the longest prefix first: `phi_k_features_` before `phi_`."""


def learn(name: str, facts: Mapping[str, Any]) -> None:
    """Have the record of a plugin's metric, as a run directory has it too; one that is built in stays as it is."""
    if name not in METRICS or METRICS[name].section == OF_PLUGINS:
        better: Better = facts["better"] if facts.get("better") in get_args(Better) else "neither"
        METRICS[name] = Metric(
            name,
            label=str(facts.get("label") or name.replace("_", " ")),
            sentence=str(facts.get("sentence", "")),
            section=OF_PLUGINS,
            chance=RANDOM,
            ceiling=ORACLE,
            unit=str(facts.get("unit", "")),
            better=better,
            format=_format(facts.get("format")),
            compared=True,
        )


def _format(asked: object) -> str:
    """A format that numbers can be written with: a run directory may hold any."""
    try:
        format(0.5, str(asked))
    except ValueError:
        return ".3f"
    return str(asked)


def get(name: str) -> Metric:
    """The record of a metric, or of one of a family (`phi_place`), its placeholder filled in.

    >>> get("phi_place_of_mary").label
    'φ of place of mary'
    """
    if (metric := find(name)) is None:
        raise KeyError(f"{name} is not in the metric catalog; accepted: a name in unbraid/metrics/catalog.toml")
    return metric


def find(name: str) -> Metric | None:
    """The same; None where there is no record."""
    if name in METRICS:
        return METRICS[name]
    family, member = _family(name)
    if not family:
        return None
    metric, placeholder = METRICS[family], family[family.index("<") :]
    label, sentence = (text.replace(placeholder, member) for text in (metric.label, metric.sentence))
    return replace(metric, name=name, label=label, sentence=sentence)


def parts(name: str) -> tuple[str, str]:
    """The name of the record that a metric has, and which of its family it is; nothing where it is of no family.

    >>> parts("sharpness_l0"), parts("phi_share")
    (('sharpness_<kind>', 'ℓ0'), ('phi_share', ''))
    """
    family, member = _family(name)
    return (family, member) if family else (name, "")


def classify_row_std(value: float) -> str:
    """The gauge study's word for a head of this row_std."""
    return "SHARP" if value > SHARP else "MEDIUM" if value > MEDIUM else "UNIFORM"


def page() -> str:
    """docs/metrics.md: the template, with the records of a section where it says `{{section}}`."""
    text = TEMPLATE.read_text()
    for section in dict.fromkeys(metric.section for metric in METRICS.values()):
        entries = [_entry(metric) for metric in METRICS.values() if metric.section == section]
        text = text.replace(f"{{{{{section}}}}}\n", "\n".join(entries))
    return text


def print_page() -> None:
    """Write docs/metrics.md to standard output."""
    print(page(), end="")


def _family(name: str) -> tuple[str, str]:
    """The family of a name and what stands for the placeholder; nothing where it is of no family."""
    if name in METRICS:
        return "", ""
    for prefix, family in _FAMILIES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return family, _member(family, name.removeprefix(prefix))
    return "", ""


def _member(family: str, member: str) -> str:
    """`place_of_mary` as words; of a kind of head `l2` as ℓ2."""
    if family.endswith("<kind>"):
        return f"ℓ{member[1:]}" if member[:1] == "l" and member[1:].isdigit() else member
    return member.replace("_", " ")


def _entry(metric: Metric) -> str:
    """Heading, sentence, and one item each for the formula, the numbers to hold it against, and what to beware of."""
    why_none = f"none: {metric.why_none.removeprefix('none: ')}"
    least = why_none if metric.least_difference is None else f"{metric.least_difference:g}, {metric.least_reason}"
    against = {
        "Unit": f"{metric.unit}; {metric.direction}",
        "Chance": metric.chance,
        "Ceiling": metric.ceiling,
        "Smallest effect": least,
    }
    about = re.sub(r"<(\w+)>", r"*\1*", f"**{metric.label}**: {metric.sentence}.")
    items = [
        f"Formula: {metric.formula}." if metric.formula else "",
        " ".join(f"{name}: {_with_reason(fact.rstrip('.'))}." for name, fact in against.items()),
        f"Pitfalls: {metric.pitfalls}" if metric.pitfalls else "",
    ]
    lines = [about, "", *(f"- {item}" for item in items if item)]
    return f"#### `{metric.name}`\n\n" + "".join(f"{_wrap(line)}\n" for line in lines)


def _with_reason(fact: str) -> str:
    """`none: a time` as `none (a time)`."""
    return f"none ({fact.removeprefix('none: ')})" if fact.startswith("none: ") else fact


def _wrap(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return fill(line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    print_page()
