"""Say in plain sentences what language models were taught, how well they predict, and how they write."""

from unbraid.config import JsonDict
from unbraid.reports.findings import Findings, Setting
from unbraid.reports.language_models import by_kind, described, layers
from unbraid.reports.phrases import either, said, said_of_all
from unbraid.reports.words import count, estimate, interval, number

TEXT_CHANCE = (
    "Chance of loss, perplexity and bits is counting how often each token occurs in training; of what heads do it is "
    "said with each score."
)


def what_was_taught(config: JsonDict, amount: int, grid: str) -> list[str]:
    """The models and their teaching, the text, and the constraints: a sentence each."""
    kinds = either(by_kind(config))
    models = (
        f"{count(amount, 'language model')}{grid} ({kinds}) of {count_of(layers(config), 'layer')}, "
        f"taught for {said(config, 'teaching.steps')} steps of {said(config, 'teaching.batch')} windows at learning "
        f"rate {said(config, 'teaching.learning_rate')}."
    )
    units = said(config, "world.units").replace("bpe", "byte pairs")
    world = f"World: the text {said(config, 'world.text')} in {units}, windows of {said(config, 'world.context')}."
    scale = [f"Scale: {config['scale']}."] if config.get("scale") else []
    return [*scale, models, *described(config), world, *said_of_all(config, "constraints")]


def count_of(amount: str, thing: str) -> str:
    """An amount that is a phrase already."""
    return f"{amount} {thing}" if amount == "1" else f"{amount} {thing}s"


def headline(findings: Findings) -> str:
    """The perplexity of the best setting, beside counting tokens and counting pairs."""
    best = findings.best()
    if best is None:
        return "No setting has a perplexity: nothing can be said about what was learned."
    score, amount = best.scores["perplexity"], len(findings.settings)
    subject = f"Best of {amount} settings: {best.label}" if amount > 1 else "The model"
    pairs = counted_pairs(findings, best).get("perplexity")
    beside = [
        f"{what} gives {number('perplexity', value)}"
        for what, value in (("counting tokens", score.chance), ("counting pairs", pairs))
        if value is not None
    ]
    where = f", where {' and '.join(beside)}" if beside else ""
    return f"{subject} has a perplexity of {estimate('perplexity', score)}{where}."


def details(findings: Findings) -> list[str]:
    """Bits per character, and which settings predict clearly better or worse than the first."""
    best = findings.best()
    bits = best.scores.get("bits_per_character") if best else None
    sentences = [] if bits is None else [f"That is {estimate('bits_per_character', bits)} bits a character."]
    found: dict[tuple[int, str], list[str]] = {}
    for one in findings.differences:
        if one["metric"] == "perplexity" and one["verdict"] != "undecided":
            by = f"{number('perplexity', one['value'], True)} {interval('perplexity', one['interval'], True)}"
            this = findings.settings[one["setting"]].label
            found.setdefault((one["reference"], one["verdict"]), []).append(f"{this}: {by}")
    for (reference, verdict), each in found.items():
        better = "better" if verdict == "lower" else "worse"
        first = findings.settings[reference].label
        sentences.append(f"Predicting {better} than {first}, by perplexity: {'; '.join(each)}.")
    return sentences


def pairs_counted(findings: Findings) -> str:
    """What counting pairs gives, on each text and cut that was run."""
    found = {tuple(pairs.items()): None for one in findings.settings if (pairs := counted_pairs(findings, one))}
    told = [", ".join(f"{name.replace('_', ' ')} {number(name, value)}" for name, value in pairs) for pairs in found]
    return f"What counting pairs of tokens gives: {'; or '.join(told)}." if told else ""


def written(findings: Findings) -> list[str]:
    """How the first member of each drawn setting goes on from the beginning of what is to be predicted."""
    found: list[str] = []
    for setting in findings.drawn:
        for stack, place in setting.places:
            sample = findings.texts[stack].get("samples", {}).get(str(place)) if findings.texts else None
            if sample:
                found.append(f"{setting.label}: {sample['prompt']} ▸ {sample['text']}")
                break
    return found


def replicated(worlds: int, seeds: int) -> str:
    """What replicates differ in."""
    if worlds > 1:
        return f"world.seed ({worlds} times other windows) and seed ({count(seeds, 'start')} of the weights)."
    return "seed: how the weights start. All are taught on the same windows and predict the same text."


def counted_pairs(findings: Findings, setting: Setting) -> dict[str, float]:
    """What counting pairs of tokens gives on the text of this setting, by score."""
    stack = setting.places[0][0]
    return findings.texts[stack].get("bigram", {}) if findings.texts else {}
