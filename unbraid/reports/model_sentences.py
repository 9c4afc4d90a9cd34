"""Say in plain sentences what models were trained, how well they answer, and what the error bars cover."""

from unbraid.config import JsonDict, flatten
from unbraid.reports.configurations import setting_configs
from unbraid.reports.run_results import RunResults
from unbraid.reports.phrases import at, phrase, said, enabled_sentence
from unbraid.reports.tasks import Task, tasks, without_the_question
from unbraid.reports.words import count, estimate, number

MODEL_CHANCE = (
    "Chance of the accuracy is the best of a few rules of thumb that do not read the question; only above what is "
    "possible without the question has a model surely read it. Of the rest chance is said with each score: a head "
    "that looks at every token alike, the same model before it was trained, or random directions."
)


def what_was_trained(config: JsonDict, amount: int, grid: str) -> list[str]:
    """The models and their teaching, the stories, and the constraints: a sentence each."""
    styles = said(config, "model.causal").replace("True", "causal").replace("False", "looking both ways")
    models = (
        f"{count(amount, 'model')}{grid} of {said(config, 'model.layers')} layers with {said(config, 'model.heads')} "
        f"heads ({said(config, 'model.attention')}, {looks}), d_model {said(config, 'model.d_model')}, d_ff "
        f"{said(config, 'model.d_ff')}, trained for {said(config, 'teaching.steps')} steps of "
        f"{said(config, 'teaching.batch')} at learning rate {said(config, 'teaching.learning_rate')}."
    )
    single = said(config, "world.layout") == "single"
    asked = "one question a story" if single else "every question asked where it stands, and read there"
    fixed = said(config, "world.examples")
    fresh = "fresh ones at every step" if fixed == "–" else f"{fixed} of them, again and again"
    world = f"World: stories, {said(config, 'world.task')} ({asked}; {fresh}).{_own_sizes(config)}"
    scale = [f"Scale: {config['scale']}."] if config.get("scale") else []
    return [*scale, models, world, *enabled_sentence(config, "constraints")]


def _own_sizes(config: JsonDict) -> str:
    """What the tasks that were run have of their own, and which of them leave nothing to ask."""
    trees = {str(at(tree, "world.task")): tree for _, tree in setting_configs(config)}
    described = ""
    for task, tree in trees.items():
        own = [f"{path} {phrase(at(tree, path))}" for path in flatten(config.get("tasks", {}).get(task, {}))]
        described += f" Of its own {task} has {', '.join(own)}." if own else ""
        if task == "two_facts" and at(tree, "world.things") == 1:
            described += f" With one thing to ask for, the question of {task} is always the same."
    return described


def headline(results: RunResults) -> str:
    """How well questions are answered: by the first setting of each task, or by the best of the only task."""
    found = tasks(results)
    if len(found) == 1:
        return _best(results)
    parts = [f"{task.name} {_answered(task)}{_at_most(results, task)}" for task in found]
    return f"Answered right by {found[0].rows[0].name}: {'; '.join(parts)}."


def _best(results: RunResults) -> str:
    best = results.best()
    if best is None:
        return "No setting has an accuracy: nothing can be said about answers."
    score, amount = best.scores["accuracy"], len(results.settings)
    subject = f"Best of {amount} settings: {best.label}" if amount > 1 else "The model"
    chance = "" if score.chance is None else f", where a rule of thumb has {number('accuracy', score.chance)}"
    beside = f"{chance}{_at_most(results, tasks(results)[0])}"
    return f"{subject} answers {estimate('accuracy', score)} of the questions right{beside}."


def _at_most(results: RunResults, task: Task) -> str:
    bar = without_the_question(results, task)
    return "" if bar is None else f", at most {number('accuracy', bar)} without the question"


def _answered(task: Task) -> str:
    score = task.rows[0].setting.scores.get("accuracy")
    if score is None:
        return "–"
    return f"{estimate('accuracy', score)}, chance {number('accuracy', score.chance)}"


def details(results: RunResults) -> list[str]:
    """Which settings answer fewer or more questions than the first of their task, and attend less or more rightly."""
    sentences: list[str] = []
    for task in tasks(results):
        first = task.rows[0].name
        for verdict, who in _called(results, task, "accuracy").items():
            amount = "more" if verdict == "higher" else "fewer"
            sentences.append(f"On {task.name}, {amount} questions are answered right than with {first}: {who}.")
        for verdict, who in _called(results, task, "support_best").items():
            amount = "more" if verdict == "higher" else "less"
            sentences.append(f"On {task.name}, the best head attends {amount} to the supporting facts: {who}.")
    if sentences or not results.differences:
        return sentences
    return ["No setting differs clearly from the first in accuracy or in attention to supporting facts."]


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


def replicated(worlds: int, seeds: int) -> str:
    """What replicates differ in."""
    if worlds > 1:
        return f"world.seed ({worlds} times other stories) and seed ({count(seeds, 'start')} of the weights)."
    return "seed: how the weights start. All are trained and examined on the same stories."
