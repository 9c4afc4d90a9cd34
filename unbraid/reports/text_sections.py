"""The parts of a report that are words and tables: summary, scores, differences, environment."""

from collections.abc import Callable, Sequence

from unbraid.config import JsonDict
from unbraid.reports import markup
from unbraid.reports.canvas import SIGNS, Section
from unbraid.reports.equality import is_decided_by_accuracy
from unbraid.reports.language_model_sentences import written
from unbraid.reports.markup import Group
from unbraid.reports.matching_words import LEADING
from unbraid.reports.run_results import MOST_LINES, MOST_ROWS, RunResults, best_of, environment
from unbraid.reports.score_tables import score_cells, score_table
from unbraid.reports.summaries import Summary, summary_of
from unbraid.reports.words import beside, describe_metric, in_order, interval, number, seconds

OF_EMBEDDINGS = ("evenness", "hopkins", "clusters", "clustered")
ON_STORIES = (
    *("accuracy", "support_best", "support_mass", "attention_entropy", "separation", "steps_to_95"),
    *("parameters", "seconds"),
)
ON_TEXT = ("perplexity", "bits_per_character", "row_std", "sharpness")
ON_LANGUAGE_MODEL = ("loss_recovered", "probe_1")
MAIN = (
    *(*LEADING, "mmcs", "mcc", "recovered", "f1", "explained_variance", "l0", "dead"),
    *(*ON_LANGUAGE_MODEL, *OF_EMBEDDINGS, *ON_STORIES, *ON_TEXT),
)
"""The scores in the first table; the rest is folded away."""
FEW = (
    *(*LEADING, "mmcs", "f1", "l0", *ON_LANGUAGE_MODEL, *OF_EMBEDDINGS),
    *("accuracy", "support_best", "attention_entropy", *ON_TEXT[:2]),
)
"""The same where there are many settings."""
MANY = 4
BY_LUCK = 20
"""Of so many comparisons one is called by luck alone, at 95 %."""


def summary(results: RunResults, level: int) -> str:
    """The headline, and what was run."""
    words = summary_of(results.facts)
    top = (words.headline(results), " ".join(words.details(results)))
    described = "".join(markup.paragraph(sentence) for sentence in top if sentence)
    config = (results.run.path / "config.toml").read_text(encoding="utf-8")
    again = "Save this as config.toml and run it again with: unbraid run config.toml"
    return (
        f'<div class="headline">{described}</div>'
        + markup.heading(level, "What was run")
        + markup.paragraph(" ".join(words.what_was_run(results.config)))
        + markup.fold("The whole configuration", markup.paragraph(again, "soft") + markup.code(config))
    )


def all_scores(results: RunResults) -> Section:
    """The table of settings, metric by metric, and what its intervals, chance and ceiling are."""
    metrics = in_order(list(dict.fromkeys(metric for setting in results.settings for metric in setting.scores)))
    words: Summary = summary_of(results.facts)
    meaning = f"{words.error_bar(results)} {words.references(results)}"
    return Section("All scores", meaning, [], _language_model(results.language_model) + _tables(results, metrics))


def text_samples(results: RunResults) -> Section:
    """How the first replicate of each drawn setting continues the text."""
    samples = "".join(markup.paragraph(sample) for sample in written(results))
    shown = markup.fold("Samples", samples) if samples else ""
    return Section("How the models write", "Prompt ▸ continuation, by the first replicate of each setting.", [], shown)


def _language_model(scores: JsonDict) -> str:
    """Where dictionaries were evaluated on a language model: on which texts, with which baseline, and warnings."""
    if not scores:
        return ""
    raw = scores["baselines"]["raw activations"].get("probe_1")
    one_coordinate = f" A probe on one coordinate of the activations: {raw['value']:.3f}." if raw else ""
    meaning = (
        f"Evaluated on {scores['model']}, {scores['site']}: reconstructions spliced in on {scores['text']}; probes on "
        f"{', '.join(scores['labelled']) or 'nothing'}. Chance is a random dictionary of the same size.{one_coordinate}"
    )
    return "".join(markup.paragraph(sentence) for sentence in (meaning, *scores["warnings"]))


def differences(results: RunResults) -> Section:
    """Every setting's paired difference from the first; nothing where there is one setting."""
    if not results.differences:
        return Section("", "", [])
    references = list(dict.fromkeys(difference["reference"] for difference in results.differences))
    first = results.settings[references[0]].label
    several = " (on other tasks: from the first setting there)" if len(references) > 1 else ""
    amount = len(results.differences)
    luck = f" Of {amount} about {amount / BY_LUCK:.0f} would be called by luck alone." if amount >= BY_LUCK else ""
    meaning = (
        f"Each setting minus {first}{several}, paired by replicate: mean, 95 % interval and number of pairs. The "
        f"verdict is higher or lower where the interval leaves out 0, else undecided.{luck}"
    )
    if is_decided_by_accuracy(results.leading, results.differences):
        meaning += " These verdicts hold whether or not accuracies are equal; those at equal accuracy are above."
    metrics = in_order(list(dict.fromkeys(difference["metric"] for difference in results.differences)))
    if len(results.settings) > MOST_ROWS:
        label, others = describe_metric(metrics[0]).label, len(results.settings) - 1
        name = f"{label} of {others} settings; other scores are in scores.json"
        tables = markup.fold(name, _difference_table(results, metrics[:1]))
    else:
        tables = _folded(metrics, _first(results), lambda kept: _difference_table(results, kept))
    return Section(f"Differences from {first}", meaning, [], tables)


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


def overview(runs: Sequence[RunResults]) -> str:
    """One row a run, with its best setting; a table for each leading metric."""
    leading = dict.fromkeys(results.leading for results in runs)
    return "".join(_overview([one for one in runs if one.leading == metric], metric) for metric in leading)


def _overview(runs: Sequence[RunResults], leading: str) -> str:
    names = [describe_metric(metric).label for metric in (leading, *beside(leading))]
    head = ("run", "best setting", names[0], "95 % interval", "chance", "ceiling", *names[1:])
    rows = [_overview_row(results, leading) for results in runs]
    return markup.table("The runs and their best settings", head, [Group(rows)])


def _overview_row(results: RunResults, leading: str) -> list[str]:
    best = results.best() or results.settings[0]
    others = [number(metric, best.value(metric)) for metric in beside(leading)]
    return [results.run.name, best.label, *score_cells(best, leading), *others]


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
