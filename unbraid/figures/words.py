"""Numbers with the digits they deserve, and a metric's label, as figures, tables and sentences write them."""

import math
from collections.abc import Iterable

from unbraid.metrics.catalog import METRICS, Metric, find, parts

MISSING = "–"
NOTHING = 1e-12
UNITLESS = ("", "1", "share", "cosine", "count", "correlation")
"""Units that an axis need not name: its label says what they are of."""


def describe(metric: str) -> Metric:
    """The record of a metric in the catalog; what has none keeps its own name."""
    return find(metric) or Metric(metric, metric, "", "", chance="", ceiling="", format="#.4g")


def axis_title(metric: str) -> str:
    """What an axis is called: label and unit."""
    record = describe(metric)
    return record.label if record.unit in UNITLESS or record.unit in record.label else f"{record.label} ({record.unit})"


def in_order(metrics: Iterable[str]) -> list[str]:
    """The metrics of the catalog first, in its order; then others."""
    places = {name: place for place, name in enumerate(METRICS)}
    return sorted(dict.fromkeys(metrics), key=lambda metric: places.get(parts(metric)[0], len(places)))


def number(metric: str, value: float | None, signed: bool = False) -> str:
    """With the metric's digits, or one more than it takes to see that it is not 0."""
    if value is None or not math.isfinite(value):
        return MISSING
    digits = describe(metric).format
    if abs(value) < NOTHING:
        return "0" if digits.startswith("#") else format(0.0, digits)
    text = format(value, digits).removesuffix(".")
    text = (text if float(text) else format(value, ".1g")).replace("-", "−")
    return f"+{text}" if signed and value > 0 else text


def interval(metric: str, low: float | None, high: float | None, signed: bool = False) -> str:
    """`[0.951, 0.955]`, or a dash where there is none."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return MISSING
    return f"[{number(metric, low, signed)}, {number(metric, high, signed)}]"


def estimate(metric: str, value: float | None, low: float | None, high: float | None, signed: bool = False) -> str:
    """`0.953 [0.951, 0.955]`, or the value alone where there is no interval."""
    bounds = interval(metric, low, high, signed)
    return number(metric, value, signed) if bounds == MISSING else f"{number(metric, value, signed)} {bounds}"


def seconds(duration: float) -> str:
    """`2 min 5 s`."""
    minutes, rest = divmod(round(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{duration:.1f} s"


def count(amount: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{amount} {thing}" if amount == 1 else f"{amount} {thing}s"
