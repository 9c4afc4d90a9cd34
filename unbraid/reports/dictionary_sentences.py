"""Sentences about runs of dictionaries and baselines on a world."""

from collections.abc import Sequence

from unbraid.config import JsonDict
from unbraid.metrics.catalog import FOUND
from unbraid.reports import sentences
from unbraid.reports.configurations import setting_configs, sweep_size
from unbraid.reports.phrases import enabled_sentence, phrase, setting_phrase
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.words import count, interval, number

NO_TRUTH = "No truth was planted in these activations, so there is no MMCS and no other score against a truth."
SEED_NAMES = {"world.seed": "planted worlds with their data", "seed": "initializations"}
WITH_TRUTH = (
    "Chance is a random dictionary of the same size, fired by the same rule; the ceiling is an oracle of the same size "
    "that holds the most frequent true features and knows what fired."
)
WITHOUT_TRUTH = "Chance is answering the mean. There is no planted truth, and so no ceiling."


def what_was_run(config: JsonDict) -> list[str]:
    """The dictionaries or baselines, how they were trained, the world, and what was compared."""
    _, replicates = sweep_size(config)
    trees = [tree for _, tree in setting_configs(config)]
    baselines = [tree["baseline"] for tree in trees if tree.get("baseline")]
    trained = len(trees) - len(baselines)
    return [
        *sentences.scale_sentence(config),
        *([_trained(config, trained * replicates)] if trained else []),
        *([_fitted(config, baselines, replicates)] if baselines else []),
        world_sentence(config),
        *enabled_sentence(config, "mechanisms"),
        *sentences.compared_sentence(config),
    ]


def _trained(config: JsonDict, amount: int) -> str:
    return (
        f"{dictionaries(amount)}{sentences.grid_phrase(config)} of {setting_phrase(config, 'dictionary.d_sae')} "
        f"features ({setting_phrase(config, 'dictionary.activation')}), trained for "
        f"{setting_phrase(config, 'training.steps')} steps of {setting_phrase(config, 'training.batch')} samples at "
        f"learning rate {setting_phrase(config, 'training.learning_rate')}."
    )


def _fitted(config: JsonDict, baselines: Sequence[JsonDict], replicates: int) -> str:
    kinds = ", ".join(dict.fromkeys(str(baseline.get("kind")) for baseline in baselines))
    amount = count(len(baselines) * replicates, "baseline")
    return f"{amount}{sentences.grid_phrase(config)} ({kinds}), each fitted to {samples_phrase(config)}."


def samples_phrase(config: JsonDict) -> str:
    batch = setting_phrase(config, "samples.batch")
    drawn = "in one draw" if batch == "all" else f"in batches of {batch}"
    return f"{setting_phrase(config, 'samples.n')} samples, drawn {drawn}"


def world_sentence(config: JsonDict) -> str:
    kind = setting_phrase(config, "world.kind")
    if kind == "activations":
        return (
            f"World: activations of {setting_phrase(config, 'world.model')} at {setting_phrase(config, 'world.site')}, "
            f"{setting_phrase(config, 'world.dimensions')} dimensions, normalized: "
            f"{setting_phrase(config, 'world.normalize')}. {NO_TRUTH}"
        )
    if kind != "superposition":
        return f"World: {phrase(config.get('world', {}))}."
    noise = setting_phrase(config, "world.noise")
    noisy = "" if noise in ("0", "–") else f", with noise {noise}"
    rule = setting_phrase(config, "world.firing")
    firing = f"firing {rule}, active {setting_phrase(config, 'world.active')}"
    if "published" not in rule:
        firing = f"about {setting_phrase(config, 'world.active')} firing in each sample"
    return (
        f"World: {setting_phrase(config, 'world.n_features')} planted directions "
        f"in {setting_phrase(config, 'world.dimensions')} dimensions, "
        f"{firing} (decay {setting_phrase(config, 'world.decay')}){noisy}."
    )


def headline(results: RunResults) -> str:
    said = sentences.headline(results)
    best = results.best()
    if results.has_truth or best is None:
        return said
    return f"{said.removesuffix('.')} at L0 {number('l0', best.value('l0'))}. {NO_TRUTH}"


def details(results: RunResults) -> list[str]:
    """How far from chance, how many features were found, and the difference from the first setting."""
    best = results.best()
    if best is None or not results.has_truth:
        return []
    meaning = "MMCS is the mean cosine of each planted feature with the learned feature most like it."
    found = [meaning, _between(best), _recovered(results, best), _against_first(results, best)]
    return [sentence for sentence in (*found, sentences.selection_warning(results)) if sentence]


def error_bar(results: RunResults) -> str:
    shared = (
        "one planted world and its data; other worlds" if results.has_truth else "the same activations; other texts"
    )
    return sentences.error_bar(results, SEED_NAMES, f"All share {shared} may differ by more.")


def references(results: RunResults) -> str:
    return WITH_TRUTH if results.has_truth else WITHOUT_TRUTH


def dictionaries(amount: int) -> str:
    return "1 dictionary" if amount == 1 else f"{amount} dictionaries"


def _between(best: Setting) -> str:
    """Where the score lies between chance and ceiling."""
    score = best.scores["mmcs"]
    if score.value is None or score.chance is None or score.ceiling is None or score.ceiling <= score.chance:
        return ""
    if score.value > score.ceiling:
        return "This is above the ceiling: an oracle of the same size, holding the most frequent true features."
    low = score.value if score.interval is None else score.interval[0]
    if low <= score.chance:
        return "This is no better than chance: a random dictionary of the same size does as well."
    share = (score.value - score.chance) / (score.ceiling - score.chance)
    return f"This is {100 * share:.0f} % of the way from a random dictionary to an oracle of the same size."


def _recovered(results: RunResults, best: Setting) -> str:
    share = best.value("recovered")
    if share is None:
        return ""
    planted = len(results.probabilities(best))
    return f"Recovered: {100 * share:.0f} % of {planted} planted features (one-to-one match, cosine at least {FOUND})."


def _against_first(results: RunResults, best: Setting) -> str:
    """How the best differs from the first setting; or, where it is the first of two, how the other does."""
    two = len(results.settings) == 2
    for difference in results.differences:
        this, first = (results.settings[difference[key]] for key in ("setting", "reference"))
        if difference["metric"] == "mmcs" and difference["interval"] and (this is best or (two and first is best)):
            verdict = "not clearly different" if difference["verdict"] == "undecided" else difference["verdict"]
            by = f"{number('mmcs', difference['value'], True)} {interval('mmcs', difference['interval'], True)}"
            return f"{this.label} minus {first.label}: {by} over {count(difference['pairs'], 'pair')} ({verdict})."
    return ""
