"""Say in plain sentences what was run, what came out, and what the error bars cover."""

from unbraid.config import REPLICATES, JsonDict
from unbraid.metrics.catalog import FOUND
from unbraid.reports import line_sentences, model_sentences, text_sentences
from unbraid.reports.configurations import flat_sweep, is_line, is_taught, is_text, sweep_size
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.phrases import phrase, said, enabled_sentence
from unbraid.reports.words import count, estimate, interval, number

NO_TRUTH = "No truth was planted in them: MMCS and the other scores against a truth are left out."


def what_was_run(config: JsonDict) -> list[str]:
    """The dictionaries and their training, the world, and what was compared: a sentence each."""
    settings, replicates = sweep_size(config)
    grid = f" ({count(settings, 'setting')} × {count(replicates, 'replicate')})" if settings * replicates > 1 else ""
    if is_taught(config):
        return [*model_sentences.what_was_trained(config, settings * replicates, grid), *_compared(config)]
    if is_line(config):
        return [*line_sentences.what_was_learned(config, settings, replicates), *_compared(config)]
    if is_text(config):
        return [*text_sentences.what_was_trained(config, settings * replicates, grid), *_compared(config)]
    if "baseline" in config or "embedding" in config:
        return [_untrained(config, settings * replicates, grid), _world(config), *_compared(config)]
    trained = (
        f"{_dictionaries(settings * replicates)}{grid} of {said(config, 'dictionary.d_sae')} features "
        f"({said(config, 'dictionary.activation')}), trained for {said(config, 'training.steps')} steps of "
        f"{said(config, 'training.batch')} samples at learning rate {said(config, 'training.learning_rate')}."
    )
    scale = [f"Scale: {config['scale']}."] if config.get("scale") else []
    return [*scale, trained, _world(config), *enabled_sentence(config, "mechanisms"), *_compared(config)]


def headline(results: RunResults) -> str:
    """The best setting's recovery, against chance and ceiling."""
    if results.is_taught:
        return model_sentences.headline(results)
    if results.is_line:
        return line_sentences.headline(results)
    if results.is_text:
        return text_sentences.headline(results)
    best = results.best()
    if "embedding" in results.config:
        return _evenest(results)
    if best is None:
        return "No setting has an MMCS: nothing can be said about recovery."
    if not results.is_planted:
        return _unplanted(results, best)
    score = best.scores["mmcs"]
    amount = len(results.settings)
    subject = f"Best of {amount} settings: {best.label}" if amount > 1 else "The dictionary"
    against = [
        f"{what} {number('mmcs', value)}"
        for what, value in (("chance is", score.chance), ("the ceiling", score.ceiling))
        if value is not None
    ]
    where = f", where {' and '.join(against)}" if against else ""
    return f"{subject} recovers MMCS {estimate('mmcs', score)}{where}."


def _unplanted(results: RunResults, best: Setting) -> str:
    """What can be said without a truth, and what cannot."""
    amount = len(results.settings)
    subject = f"Best of {amount} settings: {best.label}" if amount > 1 else "The dictionary"
    shown = estimate("explained_variance", best.scores["explained_variance"])
    return f"{subject} explains {shown} of the variance, with L0 {number('l0', best.value('l0'))}. {NO_TRUTH}"


def details(results: RunResults) -> list[str]:
    """What else a reader wants to know at once: how far from chance, how many features, against the first setting."""
    if results.is_taught:
        return model_sentences.details(results)
    if results.is_line:
        return line_sentences.details(results)
    if results.is_text:
        return text_sentences.details(results)
    best = results.best()
    if best is None or not results.is_planted:
        return []
    meaning = "MMCS is the mean cosine of each planted feature with the learned feature most like it."
    sentences = [meaning, _place(best), _recovered(results, best), _against_first(results, best), _picked(results)]
    return [sentence for sentence in sentences if sentence]


def error_bar(results: RunResults) -> str:
    """What the replicates differ in, and so what the interval can and cannot speak for."""
    pairs = [replicate.split("/") for setting in results.settings for replicate in setting.replicates]
    worlds, models, seeds = (len({pair[place] for pair in pairs}) for place in (0, len(pairs[0]) // 2, -1))
    most = max(len(setting.replicates) for setting in results.settings)
    if most < 2:
        again = "capture.seed" if results.is_line else "seed"
        once = "Each setting was trained once, so there are no intervals: differences may be luck."
        return f"{once} Sweep {again} for more."
    bar = f"Intervals are 95 % bootstrap intervals of the mean over {most} replicates, which differ in"
    if results.is_taught:
        return f"{bar} {model_sentences.replicated(worlds, seeds)}"
    if results.is_line:
        return f"{bar} {line_sentences.replicated(worlds, models, seeds)}"
    if results.is_text:
        return f"{bar} {text_sentences.replicated(worlds, seeds)}"
    if worlds > 1 and seeds > 1:
        return f"{bar} world.seed ({worlds} planted worlds with their data) and seed ({seeds} initialisations)."
    if worlds > 1:
        return f"{bar} world.seed: other planted directions and data, the same seed for the initialisation."
    if not results.is_planted:
        return f"{bar} seed: the initialisation. All share the same activations; other texts may differ by more."
    return f"{bar} seed: the initialisation. All share one planted world and its data; other worlds may differ by more."


def _untrained(config: JsonDict, amount: int, grid: str) -> str:
    """Baselines or figures, and the samples they were given."""
    batch = said(config, "data.batch")
    drawn = "in one draw" if batch == "all" else f"in batches of {batch}"
    samples = f"{said(config, 'data.samples')} samples, drawn {drawn}"
    if "embedding" in config:
        return f"{count(amount, 'figure')}{grid} by {said(config, 'embedding.kind')} of {samples}."
    kinds = [one.get("kind") for one in flat_sweep(config).get("baseline", [config["baseline"]])]
    return f"{count(amount, 'baseline')}{grid} ({', '.join(dict.fromkeys(map(str, kinds)))}), each fitted to {samples}."


def _evenest(results: RunResults) -> str:
    """Between what the evenness of figures lies."""
    found = sorted(
        ((value, one) for one in results.settings if (value := one.value("evenness")) is not None),
        key=lambda pair: pair[0],
    )
    if not found:
        return "No figure has an evenness: nothing can be said about how points lie."
    ends = [f"{one.label} ({estimate('evenness', one.scores['evenness'])})" for _, one in (found[0], found[-1])]
    if len(found) == 1:
        return f"Evenness of {ends[0]}, where 1 is as even as uniform points."
    return f"Points lie least evenly with {ends[0]} and most evenly with {ends[1]}; 1 is as even as uniform points."


def _dictionaries(amount: int) -> str:
    return "1 dictionary" if amount == 1 else f"{amount} dictionaries"


def _world(config: JsonDict) -> str:
    kind = said(config, "world.kind")
    if kind == "activations":
        return (
            f"World: activations of {said(config, 'world.model')} at {said(config, 'world.site')}, "
            f"{said(config, 'world.dimensions')} dimensions, normalized: {said(config, 'world.normalize')}. {NO_TRUTH}"
        )
    if kind != "superposition":
        return f"World: {phrase(config.get('world', {}))}."
    noise = f", with noise {said(config, 'world.noise')}" if said(config, "world.noise") not in ("0", "–") else ""
    rule = said(config, "world.firing")
    firing = f"firing {rule}, active {said(config, 'world.active')}"
    if "published" not in rule:
        firing = f"about {said(config, 'world.active')} firing in each sample"
    return (
        f"World: {said(config, 'world.n_features')} planted directions "
        f"in {said(config, 'world.dimensions')} dimensions, "
        f"{firing} (decay {said(config, 'world.decay')}){noise}."
    )


def _compared(config: JsonDict) -> list[str]:
    swept = [f"{path} = {said(config, path)}" for path in flat_sweep(config) if path not in REPLICATES]
    return [f"Compared: {'; '.join(swept)}."] if swept and sweep_size(config)[0] > 1 else []


def _place(best: Setting) -> str:
    """Where between chance and ceiling."""
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


def _picked(results: RunResults) -> str:
    if len(results.settings) <= 2:
        return ""
    return "It was picked by this very score: expect slightly less on fresh replicates."


def _recovered(results: RunResults, best: Setting) -> str:
    share = best.value("recovered")
    if share is None:
        return ""
    planted = len(results.probabilities(best))
    own = f"{100 * share:.0f} % have a learned one of their own (cosine at least {FOUND})"
    return f"Of the {planted} planted features {own}."


def _against_first(results: RunResults, best: Setting) -> str:
    """How the best differs from the first setting; or, where it is the first of two, how the other does."""
    two = len(results.settings) == 2
    for difference in results.differences:
        this, first = (results.settings[difference[key]] for key in ("setting", "reference"))
        if difference["metric"] == "mmcs" and difference["interval"] and (this is best or (two and first is best)):
            verdict = "not clearly different" if difference["verdict"] == "undecided" else difference["verdict"]
            who = f"Against {first.label} it is" if this is best else f"Against it {this.label} is"
            by = f"{number('mmcs', difference['value'], True)} {interval('mmcs', difference['interval'], True)}"
            return f"{who} {verdict}: {by} over {count(difference['pairs'], 'pair')}."
    return ""
