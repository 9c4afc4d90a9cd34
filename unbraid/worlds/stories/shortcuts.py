"""How often rules of thumb are right: what a score on a task has to be held against."""

import numpy as np

from unbraid.axes import Float, Int
from unbraid.worlds.stories.drawing import at, one_of
from unbraid.worlds.stories.task import LOOKS, Tale, Task


def accuracies(task: Task, tale: Tale) -> dict[str, float]:
    """`chance` is the best of these rules of thumb that do not look at the question.

    `without the question` is the most that is possible so: only above it has a model surely read the question.
    """
    guesses = {**_majorities(tale.answers, len(task.answers)), **task.guess(tale)}
    scores = {name: float(at(guess, tale.answers).mean()) for name, guess in guesses.items()}
    scores["chance"] = max(score for name, score in scores.items() if not name.startswith(LOOKS))
    possible = task.possible(tale)
    if possible is not None:
        scores["without the question"] = _best_without_the_question(possible, len(task.answers))
    return scores


def _majorities(answers: Int[np.ndarray, "b q"], classes: int) -> dict[str, Float[np.ndarray, "b q c"]]:
    shares = one_of(answers, classes).mean(0)
    each = one_of(shares.argmax(-1), classes).astype(float)
    overall = one_of(shares.mean(0, keepdims=True).argmax(-1), classes).astype(float)
    return {
        "majority answer": np.broadcast_to(overall, (*answers.shape, classes)),
        "majority by question": np.broadcast_to(each, (*answers.shape, classes)),
    }


def _best_without_the_question(possible: Int[np.ndarray, "b q n"], classes: int) -> float:
    """Any of what is known may be asked for: the largest share of it that has one answer."""
    shares = one_of(possible, classes).sum(2) / (possible >= 0).sum(-1, keepdims=True)
    return float(shares.max(-1).mean())
