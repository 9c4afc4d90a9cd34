"""Tables of what heads of language models do: of every setting, and head by head."""

import numpy as np

from unbraid.metrics.catalog import MEDIUM, SHARP, classify_row_std
from unbraid.reports import markup
from unbraid.reports.markup import Group
from unbraid.reports.published_uniformity import COMPARABLE, Report, reported
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.words import MISSING, describe_metric, number

FLOOR = "row_std_uniform"
COLUMNS = {
    "perplexity": "perplexity",
    "bits_per_character": "bits per character",
    "row_std": "row_std",
    FLOOR: "its floor",
    "sharpness": "sharpness",
    "sharp_heads": "sharp heads",
    "medium_heads": "medium heads",
    "kl_mean": "KL mean",
    "kl_std": "KL std",
    "mean_distance": "distance of means",
    "gradient_spikes": "gradient spikes",
    "parameters": "parameters",
    "seconds": "seconds",
}
COUNTS = ("sharp_heads", "medium_heads")
MEANING = (
    "What heads do, in the mean over replicates; intervals are in the table of scores. row_std, its floor (exactly "
    "uniform attention at this length) and sharpness are of all heads of the last layer; sharp and medium heads are "
    f"those of any layer with a row_std above {SHARP:.2f}, or above {MEDIUM:.2f}. KL is as published: of divergences "
    "in the mean over heads, over all pairs of tokens."
)
OF_HEADS = {
    "row_std": "row_std",
    "class": "the study says",
    FLOOR: "its floor",
    "sharpness": "sharpness",
    "effective_keys": "effective keys",
    "kl_mean": "KL mean",
    "kl_std": "KL std",
}
OF_HEADS_MEANING = (
    "Heads of the last layer, each the mean over replicates (heads of one number are not the same head in another "
    "replicate). The floor is the row_std of exactly uniform attention; effective keys are exp of the entropy of a "
    "row, mean over queries; KL is of tokens that came before, in nats."
)


def what_heads_do(results: RunResults) -> str:
    """A row a setting, and under them what the gauge study and its author report of such settings."""
    found = reported(results)
    rows = [(one.label, _measured(results, one)) for one in results.settings]
    theirs = [(one.label, _reported(one)) for one in found]
    kept = [name for name in COLUMNS if any(name in cells for _, cells in rows)]
    groups = [Group(_cells(rows, kept), "Measured here" if found else "")]
    if found:
        groups.append(Group(_cells(theirs, kept), "Reported", COMPARABLE))
    table = markup.table("What heads do", ("setting", *[COLUMNS[name] for name in kept]), groups)
    return markup.paragraph(MEANING, "soft") + table


def head_table(results: RunResults, setting: Setting) -> str:
    """Every head of the last layer of a setting, folded away; empty where it was not looked at."""
    stack = setting.places[0][0]
    labels = results.texts[stack].get("heads", []) if results.texts else []
    if "row_std" not in results.tables[stack] or not labels:
        return ""
    means = {name: _over_members(results, setting, name) for name in OF_HEADS if name in results.tables[stack]}
    floor = float(means.pop(FLOOR))
    kept = [name for name in OF_HEADS if name in means or name in ("class", FLOOR)]
    rows: list[list[str]] = []
    for head, label in enumerate(labels):
        values = {name: _digits(name, float(table[head])) for name, table in means.items()}
        values |= {"class": classify_row_std(float(means["row_std"][head])), FLOOR: _digits(FLOOR, floor)}
        rows.append([f"head {head} ({label})", *[values[name] for name in kept]])
    table = markup.table("Heads", ("head", *[OF_HEADS[name] for name in kept]), [Group(rows)])
    inside = markup.paragraph(OF_HEADS_MEANING, "soft") + table
    return markup.fold(f"Every head in numbers: {setting.label}", inside)


def _cells(rows: list[tuple[str, dict[str, str]]], kept: list[str]) -> list[list[str]]:
    return [[label, *[cells.get(name, MISSING) for name in kept]] for label, cells in rows]


def _measured(results: RunResults, setting: Setting) -> dict[str, str]:
    cells = {name: number(name, setting.value(name)) for name in COLUMNS if name in setting.scores}
    if "row_std" in setting.scores:
        cells[FLOOR] = number("row_std", setting.scores["row_std"].chance)
    table = results.tables[setting.places[0][0]].get("row_std")
    amount = f" of {table[0].size}" if table is not None else ""
    return {name: f"{text}{amount}" if name in COUNTS else text for name, text in cells.items()}


def _reported(report: Report) -> dict[str, str]:
    cells = {name: f"{value:g}" for name, value in report.values.items()}
    return {name: f"{text} of {report.heads}" if name in COUNTS else text for name, text in cells.items()}


def _over_members(results: RunResults, setting: Setting, name: str) -> np.ndarray:
    """Of the last layer by head, or the one number there is of a member."""
    tables = [results.tables[stack][name][place] for stack, place in setting.places]
    return np.asarray(np.mean([table[-1] if table.ndim else table for table in tables], axis=0, dtype=float))


def _digits(name: str, value: float) -> str:
    digits = {"effective_keys": ".1f", "row_std": ".4f", FLOOR: ".4f"}.get(name) or describe_metric(name).format
    return format(value, digits) if np.isfinite(value) else MISSING
