"""Rules of thumb that several tasks share: how likely each answer is, without solving the task."""

import numpy as np

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories.drawing import last, one_of
from unbraid.worlds.stories.script import Script
from unbraid.worlds.stories.task import Tale


def stated(script: Script, tale: Tale, factor: str) -> Int[np.ndarray, "b n"]:
    """What each statement says of this, when it has been read."""
    return tale.factors[factor][:, script.statements, -1]


def asked(script: Script, tale: Tale, factor: str) -> Int[np.ndarray, "b q"]:
    """What each question says of this, when it has been read."""
    return tale.factors[factor][:, script.questions, -1]


def sure(answers: Int[np.ndarray, "b q"], classes: int) -> Float[np.ndarray, "b q c"]:
    """This answer and no other; none where it is -1."""
    return one_of(answers, classes).astype(float)


def evenly(possible: Bool[np.ndarray, "b q c"]) -> Float[np.ndarray, "b q c"]:
    """Each possible answer as likely."""
    return possible / np.maximum(possible.sum(-1, keepdims=True), 1)


def of_places(script: Script, tale: Tale, classes: int) -> dict[str, Float[np.ndarray, "b q c"]]:
    """The place named last; and the one named most often, the first or the latest of them where there are several."""
    named = one_of(stated(script, tale, "place"), classes)
    latest = last(named)[:, script.told]
    counts = len(script.statements) * np.cumsum(named, axis=1)[:, script.told - 1]
    return {
        "last statement": sure(latest.argmax(-1), classes),
        "most frequent": sure((counts - named.argmax(1)[:, None]).argmax(-1), classes),
        "most frequent, latest": sure((counts + latest).argmax(-1), classes),
    }


def any_place_of_the_asked(script: Script, tale: Tale, classes: int) -> Float[np.ndarray, "b q c"]:
    """Any place to which the person asked for has moved."""
    theirs = stated(script, tale, "person")[:, None] == asked(script, tale, "person")[..., None]
    theirs &= np.arange(theirs.shape[2]) < script.told[:, None]
    been = one_of(stated(script, tale, "place"), classes)
    return evenly((theirs[..., None] & been[:, None]).any(2))
