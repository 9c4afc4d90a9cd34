"""Sentences about runs of models on stories."""

from unbraid.config import JsonDict, flatten
from unbraid.reports import sentences
from unbraid.reports.configurations import setting_configs, sweep_size
from unbraid.reports.phrases import at, enabled_sentence, phrase, setting_phrase
from unbraid.reports.run_results import RunResults
from unbraid.reports.tasks import Task, tasks, without_the_question
from unbraid.reports.words import MISSING, count, describe_metric, estimate, number

REFERENCES = (
    "Chance of the accuracy is the best of a few shortcuts that do not read the question; a model has read it for "
    "certain only above what is possible without the question. Of the other scores chance is named with each: uniform "
    "attention, the same model before training, or random directions."
)
SEED_NAMES = {"world.seed": "sets of stories", "seed": "initializations"}
SHARED = "All are trained and evaluated on the same stories."


def what_was_run(config: JsonDict) -> list[str]:
    """The models and their training, the stories, the constraints, and what was compared."""
    settings, replicates = sweep_size(config)
    trained = models_trained(config, settings * replicates, sentences.grid_phrase(config))
    return [*trained, *sentences.compared_sentence(config)]


def models_trained(config: JsonDict, amount: int, grid: str) -> list[str]:
    """So many models and their training, the stories, and the constraints: a sentence each."""
    heads = f"{setting_phrase(config, 'model.layers')} layers with {setting_phrase(config, 'model.heads')} heads"
    causal = setting_phrase(config, "model.causal").replace("True", "causal").replace("False", "bidirectional")
    models = (
        f"{count(amount, 'model')}{grid} of {heads} ({setting_phrase(config, 'model.attention')}, {causal}), d_model "
        f"{setting_phrase(config, 'model.d_model')}, d_ff {setting_phrase(config, 'model.d_ff')}, "
        f"{training_phrase(config)}."
    )
    single = setting_phrase(config, "world.layout") == "single"
    questions = "one question a story" if single else "every question in its place in the story"
    examples = setting_phrase(config, "world.examples")
    fresh = "fresh stories at every step" if examples == "–" else f"{examples} stories, seen again and again"
    world = f"World: stories, {setting_phrase(config, 'world.task')} ({questions}; {fresh}).{_own_sizes(config)}"
    return [*sentences.scale_sentence(config), models, world, *enabled_sentence(config, "constraints")]


def training_phrase(config: JsonDict, unit: str = "stories") -> str:
    steps, batch, rate = (
        setting_phrase(config, f"model.training.{name}") for name in ("steps", "batch", "learning_rate")
    )
    return f"trained for {steps} steps of {batch} {unit} at learning rate {rate}"


def _own_sizes(config: JsonDict) -> str:
    """What the tasks that were run have of their own, and which of them leave nothing to ask."""
    trees = {str(at(tree, "world.task")): tree for _, tree in setting_configs(config)}
    sizes = ""
    for task, tree in trees.items():
        own = [f"{path} {phrase(at(tree, path))}" for path in flatten(config.get("tasks", {}).get(task, {}))]
        sizes += f" Settings of {task} alone: {', '.join(own)}." if own else ""
        if task == "two_facts" and at(tree, "world.things") == 1:
            sizes += f" With one thing to ask for, the question of {task} is always the same."
    return sizes


def headline(results: RunResults) -> str:
    """The best accuracy; with several tasks that of each task's first setting."""
    found = tasks(results)
    if len(found) == 1:
        best = results.best()
        chance = None if best is None else best.scores["accuracy"].chance
        return sentences.headline(results, _references(results, found[0], chance))
    parts = [f"{task.name} {_accuracy(results, task)}" for task in found]
    several = any(len(task.rows) > 1 for task in found)
    first = f" of {found[0].rows[0].name}" if several else ""
    return f"Accuracy{first}: {'; '.join(parts)}."


def _accuracy(results: RunResults, task: Task) -> str:
    """Of a task's first setting, beside what to hold it against."""
    score = task.rows[0].setting.scores.get("accuracy")
    if score is None:
        return MISSING
    references = _references(results, task, score.chance)
    known = [f"{name} {number('accuracy', value)}" for name, value in references if value is not None]
    return f"{estimate('accuracy', score)} ({', '.join(known)})"


def _references(results: RunResults, task: Task, chance: float | None) -> list[sentences.Reference]:
    return [("chance", chance), ("without the question", without_the_question(results, task))]


def details(results: RunResults) -> list[str]:
    """Which settings differ clearly from the first of their task in accuracy or in attention on the support."""
    found: list[str] = []
    for task in tasks(results):
        first = task.rows[0].name
        for metric in ("accuracy", "support_best"):
            for verdict, settings in _called(results, task, metric).items():
                label = describe_metric(metric).label
                found.append(f"{task.name}, {label} {verdict} than {first}: {settings}.")
    if found or not results.differences:
        return found
    return ["No setting differs clearly from the first in accuracy or in attention on the supporting facts."]


def error_bar(results: RunResults) -> str:
    return sentences.error_bar(results, SEED_NAMES, SHARED)


def _called(results: RunResults, task: Task, metric: str) -> dict[str, str]:
    """By verdict, the rows that have it, each with its difference from the first."""
    names = {row.setting.index: row.name for row in task.rows}
    found: dict[str, list[str]] = {}
    for one in results.differences:
        alike = one["setting"] in names and one["reference"] == task.rows[0].setting.index
        if one["metric"] == metric and alike and one["verdict"] != "undecided":
            by = number(metric, one["value"], True)
            found.setdefault(one["verdict"], []).append(f"{names[one['setting']]} ({by})")
    return {verdict: ", ".join(who) for verdict, who in found.items()}
