"""A metric's record in the catalog, and numbers with the digits they deserve."""

import math
from collections.abc import Iterable
from dataclasses import replace

from unbraid.metrics.catalog import METRICS, Metric, find, parts
from unbraid.reports.run_results import Score, Setting

MISSING = "–"
NOTHING = 1e-12
BESIDE = {
    "phi": ("phi_share", "accuracy"),
    "mmcs": ("recovered", "l0"),
    "explained_variance": ("l0", "dead"),
    "accuracy": ("support_best", "attention_entropy"),
    "perplexity": ("bits_per_character", "parameters"),
    "evenness": ("clusters",),
}
"""The scores shown beside a leading one where there is little room."""


def describe_metric(metric: str) -> Metric:
    """The record of a metric in the catalog; what has none keeps its own name."""
    return find(metric) or Metric(metric, metric, "", "", chance="", ceiling="", format="#.4g")


def describe_metric_of(metric: str, settings: Iterable[Setting]) -> Metric:
    """The same, and nothing is said of a ceiling where none of these settings has one."""
    record = describe_metric(metric)
    scores = [setting.scores.get(record.ceiling_of or metric) for setting in settings]
    if record.unbounded is None or any(score is not None and score.ceiling is not None for score in scores):
        return record
    sentence, reading = record.unbounded
    return replace(record, sentence=sentence, reading=reading)


def beside(leading: str) -> tuple[str, ...]:
    return BESIDE.get(leading, ())


def in_order(metrics: list[str]) -> list[str]:
    """The metrics of the catalog first, in its order; then others."""
    places = {name: place for place, name in enumerate(METRICS)}
    return sorted(metrics, key=lambda metric: places.get(parts(metric)[0], len(places)))


def number(metric: str, value: float | None, signed: bool = False) -> str:
    """With the metric's digits, or one more than it takes to see that it is not 0."""
    if value is None or not math.isfinite(value):
        return MISSING
    digits = describe_metric(metric).format
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
