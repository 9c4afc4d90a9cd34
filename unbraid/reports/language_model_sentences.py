"""Sentences about runs of language models, and samples of what they write."""

from unbraid.config import JsonDict
from unbraid.reports import sentences
from unbraid.reports.configurations import sweep_size
from unbraid.reports.language_models import by_kind, describe_models, layers
from unbraid.reports.model_sentences import training_phrase
from unbraid.reports.phrases import either, enabled_sentence, setting_phrase
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.words import count, estimate, interval, number

REFERENCES = (
    "Chance of loss, perplexity and bits is counting how often each token occurs in training; of heads it is named "
    "with each score."
)
SEED_NAMES = {"world.seed": "orders of windows", "seed": "initializations"}
SHARED = "All are trained on the same windows and predict the same text."


def what_was_run(config: JsonDict) -> list[str]:
    """The models and their training, the text, the constraints, and what was compared."""
    settings, replicates = sweep_size(config)
    amount = f"{count(settings * replicates, 'language model')}{sentences.grid_phrase(config)}"
    size = f"({either(by_kind(config))}) of {count_of(layers(config), 'layer')}"
    models = f"{amount} {size}, {training_phrase(config, 'windows')}."
    units = setting_phrase(config, "world.units").replace("bpe", "byte pairs")
    text, context = setting_phrase(config, "world.text"), setting_phrase(config, "world.context")
    return [
        *sentences.scale_sentence(config),
        models,
        *describe_models(config),
        f"World: the text {text} in {units}, windows of {context}.",
        *enabled_sentence(config, "constraints"),
        *sentences.compared_sentence(config),
    ]


def count_of(amount: str, thing: str) -> str:
    """An amount that is a phrase already."""
    return f"{amount} {thing}" if amount == "1" else f"{amount} {thing}s"


def headline(results: RunResults) -> str:
    """The best perplexity, beside counting tokens and counting pairs of tokens."""
    best = results.best()
    if best is None:
        return sentences.headline(results)
    pairs = counted_pairs(results, best).get("perplexity")
    references = [("counting tokens", best.scores["perplexity"].chance), ("counting pairs", pairs)]
    return sentences.headline(results, references)


def details(results: RunResults) -> list[str]:
    """Bits per character, and which settings predict clearly better or worse than the first."""
    best = results.best()
    bits = best.scores.get("bits_per_character") if best else None
    described = [] if bits is None else [f"Bits per character: {estimate('bits_per_character', bits)}."]
    called: dict[tuple[int, str], list[str]] = {}
    for one in results.differences:
        if one["metric"] == "perplexity" and one["verdict"] != "undecided":
            by = f"{number('perplexity', one['value'], True)} {interval('perplexity', one['interval'], True)}"
            this = results.settings[one["setting"]].label
            called.setdefault((one["reference"], one["verdict"]), []).append(f"{this} {by}")
    for (reference, verdict), settings in called.items():
        first = results.settings[reference].label
        described.append(f"Perplexity {verdict} than {first}: {'; '.join(settings)}.")
    return described


def error_bar(results: RunResults) -> str:
    return sentences.error_bar(results, SEED_NAMES, SHARED)


def references(results: RunResults) -> str:
    return f"{REFERENCES} {pairs_counted(results)}".rstrip()


def pairs_counted(results: RunResults) -> str:
    """What counting pairs gives, on each text and cut that was run."""
    found = {tuple(pairs.items()): None for one in results.settings if (pairs := counted_pairs(results, one))}
    described = [
        ", ".join(f"{name.replace('_', ' ')} {number(name, value)}" for name, value in pairs) for pairs in found
    ]
    return f"What counting pairs of tokens gives: {'; or '.join(described)}." if described else ""


def written(results: RunResults) -> list[str]:
    """How the first member of each drawn setting goes on from the beginning of what is to be predicted."""
    found: list[str] = []
    for setting in results.drawn:
        for stack, place in setting.places:
            sample = results.texts[stack].get("samples", {}).get(str(place)) if results.texts else None
            if sample:
                found.append(f"{setting.label}: {sample['prompt']} ▸ {sample['text']}")
                break
    return found


def counted_pairs(results: RunResults, setting: Setting) -> dict[str, float]:
    """What counting pairs of tokens gives on the text of this setting, by score."""
    stack = setting.places[0][0]
    return results.texts[stack].get("bigram", {}) if results.texts else {}
