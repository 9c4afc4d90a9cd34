"""How a run is put into words, by the name of the summary among the sections of its report.

A kind that names none of these is described by the metric catalog alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

from unbraid.config import JsonDict
from unbraid.reports import (
    dictionary_sentences,
    embedding_sentences,
    language_model_sentences,
    model_sentences,
    pipeline_sentences,
    sentences,
)
from unbraid.reports.run_results import RunResults
from unbraid.reports.words import describe_metric

SEED_NAMES = {"world.seed": "worlds", "model.seed": "models", "seed": "initializations"}
ALONE = "All share one world; other worlds may differ by more."


def _what_was_run(config: JsonDict) -> list[str]:
    return [*sentences.scale_sentence(config), *sentences.compared_sentence(config)]


def _error_bar(results: RunResults) -> str:
    return sentences.error_bar(results, SEED_NAMES, ALONE)


def _references(results: RunResults) -> str:
    record = describe_metric(results.leading)
    return f"Chance of {record.label}: {record.chance}. Its ceiling: {record.ceiling}."


def _no_details(_results: RunResults) -> list[str]:
    return []


@dataclass(frozen=True)
class Summary:
    """The sentences at the top of a report."""

    what_was_run: Callable[[JsonDict], list[str]] = _what_was_run
    headline: Callable[[RunResults], str] = sentences.headline
    details: Callable[[RunResults], list[str]] = _no_details
    """What else a reader wants to know at once."""
    error_bar: Callable[[RunResults], str] = _error_bar
    """What an interval covers."""
    references: Callable[[RunResults], str] = _references
    """What chance and ceiling are."""
    printed: tuple[str, ...] | None = None
    """The scores that `unbraid show` prints; None is all of them."""


SUMMARIES = {
    "summary": Summary(),
    "dictionary_summary": Summary(
        dictionary_sentences.what_was_run,
        dictionary_sentences.headline,
        dictionary_sentences.details,
        dictionary_sentences.error_bar,
        dictionary_sentences.references,
    ),
    "embedding_summary": Summary(
        embedding_sentences.what_was_run,
        embedding_sentences.headline,
        error_bar=embedding_sentences.error_bar,
        references=lambda _: embedding_sentences.REFERENCES,
    ),
    "model_summary": Summary(
        model_sentences.what_was_run,
        model_sentences.headline,
        model_sentences.details,
        model_sentences.error_bar,
        lambda _: model_sentences.REFERENCES,
    ),
    "language_model_summary": Summary(
        language_model_sentences.what_was_run,
        language_model_sentences.headline,
        language_model_sentences.details,
        language_model_sentences.error_bar,
        language_model_sentences.references,
    ),
    "pipeline_summary": Summary(
        pipeline_sentences.what_was_run,
        pipeline_sentences.headline,
        pipeline_sentences.details,
        pipeline_sentences.error_bar,
        lambda _: pipeline_sentences.REFERENCES,
        pipeline_sentences.PRINTED,
    ),
}


def summary_of(facts: JsonDict) -> Summary:
    """The summary that a run names among its sections."""
    return next((SUMMARIES[name] for name in facts["sections"] if name in SUMMARIES), SUMMARIES["summary"])
