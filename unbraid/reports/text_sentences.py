"""Say in plain sentences what language models were trained, how well they predict, and how they write."""

from unbraid.config import JsonDict
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.language_models import by_kind, describe_models, layers
from unbraid.reports.phrases import either, said, enabled_sentence
from unbraid.reports.words import count, estimate, interval, number

TEXT_CHANCE = (
    "Chance of loss, perplexity and bits is counting how often each token occurs in training; of what heads do it is "
    "said with each score."
)


def what_was_trained(config: JsonDict, amount: int, grid: str) -> list[str]:
    """The models and their teaching, the text, and the constraints: a sentence each."""
    kinds = either(by_kind(config))
    models = (
        f"{count(amount, 'language model')}{grid} ({kinds}) of {count_of(layers(config), 'layer')}, "
        f"trained for {said(config, 'teaching.steps')} steps of {said(config, 'teaching.batch')} windows at learning "
        f"rate {said(config, 'teaching.learning_rate')}."
    )
    units = said(config, "world.units").replace("bpe", "byte pairs")
    world = f"World: the text {said(config, 'world.text')} in {units}, windows of {said(config, 'world.context')}."
    scale = [f"Scale: {config['scale']}."] if config.get("scale") else []
    return [*scale, models, *describe_models(config), world, *enabled_sentence(config, "constraints")]


def count_of(amount: str, thing: str) -> str:
    """An amount that is a phrase already."""
    return f"{amount} {thing}" if amount == "1" else f"{amount} {thing}s"


def headline(results: RunResults) -> str:
    """The perplexity of the best setting, beside counting tokens and counting pairs."""
    best = results.best()
    if best is None:
        return "No setting has a perplexity: nothing can be said about what was learned."
    score, amount = best.scores["perplexity"], len(results.settings)
    subject = f"Best of {amount} settings: {best.label}" if amount > 1 else "The model"
    pairs = counted_pairs(results, best).get("perplexity")
    beside = [
        f"{what} gives {number('perplexity', value)}"
        for what, value in (("counting tokens", score.chance), ("counting pairs", pairs))
        if value is not None
    ]
    where = f", where {' and '.join(beside)}" if beside else ""
    return f"{subject} has a perplexity of {estimate('perplexity', score)}{where}."


def details(results: RunResults) -> list[str]:
    """Bits per character, and which settings predict clearly better or worse than the first."""
    best = results.best()
    bits = best.scores.get("bits_per_character") if best else None
    sentences = [] if bits is None else [f"That is {estimate('bits_per_character', bits)} bits a character."]
    found: dict[tuple[int, str], list[str]] = {}
    for one in results.differences:
        if one["metric"] == "perplexity" and one["verdict"] != "undecided":
            by = f"{number('perplexity', one['value'], True)} {interval('perplexity', one['interval'], True)}"
            this = results.settings[one["setting"]].label
            found.setdefault((one["reference"], one["verdict"]), []).append(f"{this}: {by}")
    for (reference, verdict), each in found.items():
        better = "better" if verdict == "lower" else "worse"
        first = results.settings[reference].label
        sentences.append(f"Predicting {better} than {first}, by perplexity: {'; '.join(each)}.")
    return sentences


def pairs_counted(results: RunResults) -> str:
    """What counting pairs gives, on each text and cut that was run."""
    found = {tuple(pairs.items()): None for one in results.settings if (pairs := counted_pairs(results, one))}
    described = [", ".join(f"{name.replace('_', ' ')} {number(name, value)}" for name, value in pairs) for pairs in found]
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


def replicated(worlds: int, seeds: int) -> str:
    """What replicates differ in."""
    if worlds > 1:
        return f"world.seed ({worlds} times other windows) and seed ({count(seeds, 'start')} of the weights)."
    return "seed: how the weights start. All are trained on the same windows and predict the same text."


def counted_pairs(results: RunResults, setting: Setting) -> dict[str, float]:
    """What counting pairs of tokens gives on the text of this setting, by score."""
    stack = setting.places[0][0]
    return results.texts[stack].get("bigram", {}) if results.texts else {}
