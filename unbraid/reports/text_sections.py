"""The sections of a report that are words and tables: what was run, the headline, scores, differences, environment."""

from collections.abc import Callable, Sequence

from unbraid.config import JsonDict
from unbraid.reports import markup
from unbraid.reports.canvas import SIGNS
from unbraid.reports.run_results import MOST_LINES, MOST_ROWS, RunResults, best_of, environment
from unbraid.reports.pipeline_sentences import LINE_CHANCE, reached
from unbraid.reports.matching_words import LEADING
from unbraid.reports.markup import Group
from unbraid.reports.model_sentences import MODEL_CHANCE
from unbraid.reports.score_tables import score_cells, score_table
from unbraid.reports.sentences import details, error_bar, headline, what_was_run
from unbraid.reports.text_sentences import TEXT_CHANCE, pairs_counted, written
from unbraid.reports.words import in_order, interval, number, seconds, describe_metric

PICTURED = ("evenness", "hopkins", "clusters", "clustered")
ON_STORIES = (
    *("accuracy", "support_best", "support_mass", "attention_entropy", "separation", "steps_to_95"),
    *("parameters", "seconds"),
)
ON_TEXT = ("perplexity", "bits_per_character", "row_std", "sharpness")
JUDGED = ("loss_recovered", "probe_1")
MAIN = (
    *(*LEADING, "mmcs", "mcc", "recovered", "f1", "explained_variance", "l0", "dead"),
    *(*JUDGED, *PICTURED, *ON_STORIES, *ON_TEXT),
)
"""The scores in the first table; the rest is folded away."""
FEW = (
    *(*LEADING, "mmcs", "f1", "l0", *JUDGED, *PICTURED),
    *("accuracy", "support_best", "attention_entropy", *ON_TEXT[:2]),
)
"""The same where there are many settings."""
MANY = 4
ALONE = 20
"""Of so many comparisons one is called by luck alone, at 95 %."""


def described(results: RunResults, level: int) -> str:
    """The headline, and what was run."""
    said = "".join(
        markup.paragraph(sentence) for sentence in (headline(results), " ".join(details(results))) if sentence
    )
    config = (results.run.path / "config.toml").read_text(encoding="utf-8")
    again = "Saved as config.toml, this does it again: unbraid run config.toml"
    samples = "".join(markup.paragraph(sample) for sample in written(results))
    return (
        f'<div class="headline">{said}</div>'
        + markup.heading(level, "What was run")
        + markup.paragraph(" ".join([*what_was_run(results.config), *(reached(results) if results.is_line else [])]))
        + (markup.fold("How the models write", samples) if samples else "")
        + markup.fold("The whole configuration", markup.paragraph(again, "soft") + markup.code(config))
    )


def scored(results: RunResults) -> str:
    """The table of settings, metric by metric, and what its intervals, chance and ceiling are."""
    metrics = in_order(list(dict.fromkeys(metric for one in results.settings for metric in one.scores)))
    meaning = (
        f"{error_bar(results)} Chance is a random dictionary of the same size, fired by the same rule; the ceiling is "
        "an oracle of the same size that holds the most frequent true features and knows what fired."
    )
    if "embedding" in results.config:
        meaning = (
            f"{error_bar(results)} Chance is the figure of the same samples with every feature's strengths dealt "
            "anew among them: each fires as often as before, and independently of the others."
        )
    if results.is_taught:
        meaning = f"{error_bar(results)} {MODEL_CHANCE}"
    if results.is_line:
        meaning = f"{error_bar(results)} {LINE_CHANCE}"
    if results.is_text:
        meaning = f"{error_bar(results)} {TEXT_CHANCE} {pairs_counted(results)}"
    if not results.is_planted:
        meaning = f"{error_bar(results)} Chance is answering the mean. There is no planted truth, and so no ceiling."
    return markup.paragraph(meaning) + _language_model(results.language_model) + _tables(results, metrics)


def _language_model(scores: JsonDict) -> str:
    """Where dictionaries were evaluated on a language model: on which texts, with which baseline, and warnings."""
    if not scores:
        return ""
    raw = scores["baselines"]["raw activations"].get("probe_1")
    beside = f" A probe on one coordinate of the activations themselves has {raw['value']:.3f}." if raw else ""
    said = (
        f"Evaluated on {scores['model']}, {scores['site']}: reconstructions spliced in on {scores['text']}; probes on "
        f"{', '.join(scores['labelled']) or 'nothing'}. There chance is a random dictionary of the same size.{beside}"
    )
    return "".join(markup.paragraph(sentence) for sentence in (said, *scores["warnings"]))


def compared(results: RunResults, level: int) -> str:
    """Every setting's paired difference from the first; nothing where there is one setting."""
    if not results.differences:
        return ""
    references = list(dict.fromkeys(one["reference"] for one in results.differences))
    first = results.settings[references[0]].label
    several = " (and on other tasks from the first there)" if len(references) > 1 else ""
    amount = len(results.differences)
    luck = f" Of {amount} about {amount / ALONE:.0f} would be called by luck alone." if amount >= ALONE else ""
    meaning = (
        f"Each setting minus {first}{several}, paired by replicate: mean, 95 % interval and number of pairs. The "
        f"verdict is higher or lower where the interval leaves out 0, else undecided.{luck}"
    )
    meaning += " Whether accuracies are equal is not asked here, but in the table above." if results.is_line else ""
    metrics = in_order(list(dict.fromkeys(one["metric"] for one in results.differences)))
    if len(results.settings) > MOST_ROWS:
        name = f"{describe_metric(metrics[0]).label} of {len(results.settings) - 1} settings; other scores are in scores.json"
        tables = markup.fold(name, _difference_table(results, metrics[:1]))
    else:
        tables = _folded(metrics, _first(results), lambda kept: _difference_table(results, kept))
    return markup.heading(level, f"Differences from {first}") + markup.paragraph(meaning) + tables


def surroundings(results: RunResults) -> str:
    """What the result may depend on beyond its configuration."""
    found, status = environment(results.run), results.run.status()
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    pairs = [
        ("run", results.run.name),
        ("began", str(results.run.facts()["began"]).replace("T", " ").replace("+00:00", " UTC")),
        ("worked", seconds(status["seconds"])),
        ("commit", found["commit"] or "not from a checkout"),
        ("Python", found["python"]),
        ("packages", packages),
        ("threads", str(found["threads"])),
        ("machine", found["machine"]),
    ]
    return f"<footer>{markup.facts(pairs)}</footer>"


def overview(results: Sequence[RunResults]) -> str:
    """One row a run, with its best setting; runs of models have a table of their own."""
    dictionaries = [one for one in results if not (one.is_taught or one.is_text or one.is_line)]
    lines = [one for one in results if one.is_line]
    models = [one for one in results if one.is_taught]
    languages = [one for one in results if one.is_text]
    return (
        _overview(dictionaries, "mmcs", ("recovered", "l0"))
        + _overview(lines, "recovery", ("recovery_share", "accuracy"))
        + _overview(models, "accuracy", ("support_best",))
        + _overview(languages, "perplexity", ("bits_per_character",))
    )


def _overview(results: Sequence[RunResults], leading: str, beside: Sequence[str]) -> str:
    if not results:
        return ""
    names = [describe_metric(metric).label for metric in (leading, *beside)]
    head = ("run", "best setting", names[0], "95 % interval", "chance", "ceiling", *names[1:])
    rows = [_overview_row(one, leading, beside) for one in results]
    return markup.table("The runs and their best settings", head, [Group(rows)])


def _overview_row(results: RunResults, leading: str, beside: Sequence[str]) -> list[str]:
    best = results.best() or results.settings[0]
    extra = [number(metric, best.value(metric)) for metric in beside]
    return [results.run.name, best.label, *score_cells(best, leading), *extra]


def _tables(results: RunResults, metrics: Sequence[str]) -> str:
    """The scores of every setting; where there are very many, of the best, and the main scores of all folded away."""
    settings = results.settings
    if len(settings) <= MOST_ROWS:
        return _folded(metrics, _first(results), lambda kept: score_table(settings, kept))
    best = results.ranked()[:MOST_LINES]
    leading = describe_metric(results.leading).label
    which = f"{best_of(results.leading)} {leading}"
    few = f"The {len(best)} settings of the {which}; every score of every setting is in scores.json."
    shown = _folded(metrics, _first(results), lambda kept: score_table(best, kept))
    every = score_table(settings, [metric for metric in metrics if metric in MAIN])
    return markup.paragraph(few) + shown + markup.fold(f"All {len(settings)} settings", every)


def _first(results: RunResults) -> Sequence[str]:
    """The metrics shown at once."""
    return MAIN if len(results.settings) <= MANY else FEW


def _folded(metrics: Sequence[str], first: Sequence[str], table: Callable[[Sequence[str]], str]) -> str:
    """The table of the first metrics, and that of the others folded away."""
    rest = [metric for metric in metrics if metric not in first]
    shown = table([metric for metric in metrics if metric in first])
    names = ", ".join(describe_metric(metric).label for metric in rest)
    return shown + (markup.fold(f"More: {names}", table(rest)) if rest else "")


def _difference_table(results: RunResults, metrics: Sequence[str]) -> str:
    """A group a metric; with two settings there is one comparison, and its metrics are the rows."""
    labels = [setting.label for setting in results.settings]
    found = {metric: [one for one in results.differences if one["metric"] == metric] for metric in metrics}
    if len(labels) == 2:
        rows = [_difference_row(describe_metric(metric).label, one) for metric, ones in found.items() for one in ones]
        groups = [Group(rows, f"{labels[1]} minus {labels[0]}")]
    else:
        groups = [
            Group([_difference_row(labels[one["setting"]], one) for one in ones], describe_metric(metric).label)
            for metric, ones in found.items()
        ]
    head = ("score", "difference", "95 % interval", "pairs", "verdict")
    return markup.table("Paired differences", head, groups, words=1)


def _difference_row(first: str, difference: JsonDict) -> list[str]:
    metric = difference["metric"]
    return [
        first,
        number(metric, difference["value"], True),
        interval(metric, difference["interval"], True),
        str(difference["pairs"]),
        f"{SIGNS[difference['verdict']]} {difference['verdict']}",
    ]
