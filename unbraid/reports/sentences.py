"""Sentences that every report has: the headline, what the error bars cover, what was compared."""

from collections.abc import Mapping, Sequence

from unbraid.config import REPLICATES, JsonDict
from unbraid.reports.configurations import flat_sweep, sweep_size
from unbraid.reports.phrases import setting_phrase
from unbraid.reports.run_results import RunResults
from unbraid.reports.words import count, describe_metric, estimate, number

SEEDS = {1: ("seed",), 2: ("world.seed", "seed"), 3: ("world.seed", "model.seed", "seed")}
"""What the parts of a replicate's name are, by their number."""

Reference = tuple[str, float | None]
"""A name and a value to hold a score against."""


def grid_phrase(config: JsonDict) -> str:
    """` (3 settings × 5 replicates)`, or nothing where there is one of each."""
    settings, replicates = sweep_size(config)
    both = f" ({count(settings, 'setting')} × {count(replicates, 'replicate')})"
    return both if settings * replicates > 1 else ""


def scale_sentence(config: JsonDict) -> list[str]:
    return [f"Scale: {config['scale']}."] if config.get("scale") else []


def compared_sentence(config: JsonDict) -> list[str]:
    """What differs between settings, with all its values."""
    swept = [f"{path} = {setting_phrase(config, path)}" for path in flat_sweep(config) if path not in REPLICATES]
    return [f"Compared: {'; '.join(swept)}."] if swept and sweep_size(config)[0] > 1 else []


def headline(results: RunResults, references: Sequence[Reference] | None = None) -> str:
    """The best setting and its leading score, beside chance and ceiling or other `references`."""
    metric = results.leading
    label, best = describe_metric(metric).label, results.best()
    if best is None:
        return f"No setting has a value of {label}."
    score = best.scores[metric]
    beside = references or (("chance", score.chance), ("ceiling", score.ceiling))
    known = [f"{name} {number(metric, value)}" for name, value in beside if value is not None]
    subject = f"Best of {len(results.settings)} settings, {best.label}: " if len(results.settings) > 1 else ""
    held_against = f" ({'; '.join(known)})" if known else ""
    return f"{subject}{label} {estimate(metric, score)}{held_against}."


def selection_warning(results: RunResults) -> str:
    if len(results.settings) <= 2:
        return ""
    return "This setting was chosen by the same score: expect slightly less on new replicates."


def error_bar(results: RunResults, seeds: Mapping[str, str], alone: str) -> str:
    """What the replicates differ in, and so what an interval covers.

    `seeds` names what each seed decides; `alone` is said where nothing but the last seed differs.
    """
    replicates = [replicate.split("/") for setting in results.settings for replicate in setting.replicates]
    paths = SEEDS[len(replicates[0])]
    most = max(len(setting.replicates) for setting in results.settings)
    if most < 2:
        once = "Each setting was trained once, so there are no intervals: differences may be luck."
        return f"{once} Sweep {paths[-2] if len(paths) > 2 else paths[-1]} for more."
    amounts = {path: len(set(values)) for path, values in zip(paths, zip(*replicates, strict=True), strict=True)}
    differ = [f"{path} ({amount} {seeds[path]})" for path, amount in amounts.items() if amount > 1]
    caveat = f" {alone}" if not any(amounts[path] > 1 for path in paths[:-1]) else ""
    bar = f"Intervals are 95 % bootstrap intervals of the mean over {most} replicates, which differ in"
    return f"{bar} {' and '.join(differ)}.{caveat}"
