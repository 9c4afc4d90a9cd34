"""Sentences about embeddings of a world's samples in the plane."""

from unbraid.config import JsonDict
from unbraid.reports import dictionary_sentences, sentences
from unbraid.reports.configurations import sweep_size
from unbraid.reports.phrases import setting_phrase
from unbraid.reports.run_results import RunResults
from unbraid.reports.words import count, estimate

REFERENCES = (
    "Chance is the embedding of the same samples with every feature's strengths permuted among them: each fires as "
    "often as before, and independently of the others."
)
SEED_NAMES = {"world.seed": "planted worlds with their data", "seed": "initializations"}
SHARED = "All share one planted world and its data; other worlds may differ by more."
MEANING = "1 is as even as uniform points."


def what_was_run(config: JsonDict) -> list[str]:
    settings, replicates = sweep_size(config)
    made = (
        f"{count(settings * replicates, 'embedding')}{sentences.grid_phrase(config)} by "
        f"{setting_phrase(config, 'embedding.kind')} of {dictionary_sentences.samples_phrase(config)}."
    )
    return [made, dictionary_sentences.world_sentence(config), *sentences.compared_sentence(config)]


def headline(results: RunResults) -> str:
    """The least and the most even setting."""
    ranked = [setting for setting in results.ranked() if setting.value("evenness") is not None]
    if not ranked:
        return "No setting has a value of Evenness."
    described = [f"{estimate('evenness', setting.scores['evenness'])} ({setting.label})" for setting in ranked]
    if len(described) == 1:
        return f"Evenness {described[0]}; {MEANING}"
    return f"Evenness from {described[-1]} to {described[0]}; {MEANING}"


def error_bar(results: RunResults) -> str:
    return sentences.error_bar(results, SEED_NAMES, SHARED)
