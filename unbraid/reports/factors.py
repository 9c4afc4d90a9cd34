"""Recovery factor by factor: factors that track one thing each (`place of mary`, `place of john`) stand together."""

from collections.abc import Sequence

from unbraid.metrics.intervals import estimate
from unbraid.reports.matching_words import factor_of
from unbraid.reports.run_results import RunResults, Score, Setting, finite

TRACKED = " of "


def group_of(factor: str) -> str:
    """`place of mary` belongs to `place of …`; other factors are groups of their own."""
    kind, tracked, _ = factor.partition(TRACKED)
    return f"{kind}{TRACKED}…" if tracked else factor


def factor_scores(setting: Setting) -> dict[str, Score]:
    """The recovery of every group of factors, in their order."""
    found: dict[str, list[Score]] = {}
    for metric, score in setting.scores.items():
        if factor := factor_of(metric):
            found.setdefault(group_of(factor), []).append(score)
    return {group: _mean(scores) for group, scores in found.items()}


def members(results: RunResults) -> dict[str, list[str]]:
    """The groups of the factors of all settings, and the factors in each."""
    metrics = dict.fromkeys(metric for setting in results.settings for metric in setting.scores)
    found: dict[str, list[str]] = {}
    for factor in filter(None, map(factor_of, metrics)):
        found.setdefault(group_of(factor), []).append(factor)
    return found


def _mean(scores: Sequence[Score]) -> Score:
    """Over factors, replicate by replicate; its interval is over replicates."""
    if len(scores) == 1:
        return scores[0]
    each = [finite(column) for column in zip(*(score.members for score in scores), strict=True)]
    members = [_average(column) for column in each]
    mean = estimate(known) if (known := finite(members)) else None
    return Score(
        mean.value if mean else None,
        mean.interval if mean else None,
        _average(finite([score.chance for score in scores])),
        _average(finite([score.ceiling for score in scores])),
        members,
    )


def _average(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
