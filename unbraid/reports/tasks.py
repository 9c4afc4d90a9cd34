"""The settings of a run of models by task: each task has the same rows, and a row has the same style in all."""

from dataclasses import dataclass

from unbraid.config import JsonDict, task_of
from unbraid.reports.phrases import phrase
from unbraid.reports.run_results import MOST_LINES, RunResults, Setting

WITHOUT = "without the question"
BAR = "the most that is possible without the question, and only above it a model has surely read it"


@dataclass(frozen=True)
class Row:
    """A setting without its task."""

    name: str
    setting: Setting
    place: int
    """The same for rows of one name in every task."""


@dataclass(frozen=True)
class Task:
    """The rows of one task; its name is in words."""

    name: str
    rows: list[Row]

    @property
    def slug(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)


def tasks(results: RunResults) -> list[Task]:
    """In swept order; what was swept of the world distinguishes tasks, everything else rows."""
    found: dict[str, list[tuple[str, Setting]]] = {}
    for setting in results.settings:
        own = task_of(setting.swept)
        rest = {path: value for path, value in setting.swept.items() if path not in own}
        name = _words(own) or str(results.config.get("world", {}).get("task", "all stories"))
        found.setdefault(name, []).append((_words(rest) or "the one setting", setting))
    rows = list(dict.fromkeys(row for each in found.values() for row, _ in each))
    return [Task(name, [Row(row, setting, rows.index(row)) for row, setting in each]) for name, each in found.items()]


def without_the_question(results: RunResults, task: Task) -> float | None:
    """The accuracy of the best answer of all to who has not read the question; None where it is not known."""
    stack = task.rows[0].setting.places[0][0]
    return results.stories[stack].get("shortcuts", {}).get(WITHOUT)


def drawn(results: RunResults, rows: list[Row]) -> list[Row]:
    """The rows that there is room for: all, or a few from the highest accuracy to the lowest."""
    kept = {setting.index for setting in results.evenly_spread([row.setting for row in rows], MOST_LINES)}
    return [row for row in rows if row.setting.index in kept]


def undrawn(found: list[Task]) -> str:
    """Say when not every row is drawn."""
    most = max((len(task.rows) for task in found), default=0)
    if most <= MOST_LINES:
        return ""
    return (
        f" Drawn: {MOST_LINES} of {most} settings a task, spread evenly from the highest accuracy to the lowest; the "
        "table has all."
    )


def _words(swept: JsonDict) -> str:
    said = [_word(path, value) for path, value in swept.items()]
    return ", ".join(part for part in said if part)


def _word(path: str, value: object) -> str:
    """A case, a task or a part of settings needs no name."""
    if path in ("case", "world.task") or isinstance(value, dict):
        return phrase(value)
    return f"{path.split('.')[-1]} {phrase(value)}"
