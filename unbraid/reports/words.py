"""Say what the numbers are: the words of a metric, and numbers with the digits they deserve."""

import math
from collections.abc import Iterable
from dataclasses import replace

from unbraid.reports.findings import Score, Setting
from unbraid.reports.head_words import of_a_kind, which
from unbraid.reports.line_words import factor_of, of_a_factor
from unbraid.reports.metric_words import BOUND, METRICS, UNBOUNDED
from unbraid.reports.wording import Wording

MISSING = "–"
NOTHING = 1e-12


def wording(metric: str) -> Wording:
    """Of a metric, or of one of a single kind of head or factor; what has no words here keeps its own name."""
    return METRICS.get(metric) or of_a_kind(metric) or of_a_factor(metric) or Wording(metric, "", "", "#.4g")


def wording_of(metric: str, settings: Iterable[Setting]) -> Wording:
    """The same, and nothing is said of a ceiling where none of these settings has one."""
    scores = [setting.scores.get(BOUND.get(metric, metric)) for setting in settings]
    if metric not in UNBOUNDED or any(score is not None and score.ceiling is not None for score in scores):
        return wording(metric)
    meaning, better = UNBOUNDED[metric]
    return replace(wording(metric), meaning=meaning, better=better)


def in_order(metrics: list[str]) -> list[str]:
    """The metrics we have words for first, in our order, each before its own by kind of head or factor; then others."""
    places = {name: place for place, name in enumerate(METRICS)}
    return sorted(metrics, key=lambda metric: (places.get(_family(metric), len(places)), _family(metric) != metric))


def _family(metric: str) -> str:
    """What it stands with."""
    if of_a_factor(metric):
        return "recovery_share" if factor_of(metric) else "few"
    return which(metric)[0]


def number(metric: str, value: float | None, signed: bool = False) -> str:
    """With the metric's digits, or one more than it takes to see that it is not 0."""
    if value is None or not math.isfinite(value):
        return MISSING
    digits = wording(metric).digits
    if abs(value) < NOTHING:
        return "0" if digits.startswith("#") else format(0.0, digits)
    text = format(value, digits).removesuffix(".")
    text = (text if float(text) else format(value, ".1g")).replace("-", "−")
    return f"+{text}" if signed and value > 0 else text


def interval(metric: str, bounds: tuple[float, float] | list[float] | None, signed: bool = False) -> str:
    if bounds is None or any(bound is None for bound in bounds):
        return MISSING
    return f"[{number(metric, bounds[0], signed)}, {number(metric, bounds[1], signed)}]"


def estimate(metric: str, score: Score) -> str:
    """`0.953 [0.951, 0.955]`, or the value alone when there is no interval."""
    value = number(metric, score.value)
    return value if score.interval is None else f"{value} {interval(metric, score.interval)}"


def seconds(duration: float) -> str:
    minutes, rest = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{duration:.1f} s"


def count(amount: int, thing: str) -> str:
    return f"{amount} {thing}" if amount == 1 else f"{amount} {thing}s"
