"""What a task is: sizes, sentences, the order of lines and how a story is generated; and its shortcuts.

A shortcut, or rule of thumb, answers without solving the task. It gives a likelihood for each answer, b q c, from what
the statements and questions of stories say.
"""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np

from unbraid.axes import Bool, Float, Int
from unbraid.config import Config
from unbraid.worlds.stories.language import Form, Script, Sentences
from unbraid.worlds.stories.story import SMALL, Story

GIRLS_AND_BOYS = ("mary", "john", "sandra", "daniel", "julie", "bill", "emily", "fred")
"""Girls at even places, boys at odd ones."""
LINES = ("statement", "question")
PLACES = ("kitchen", "garden", "office", "bathroom", "bedroom", "hallway")
VERBS = ("moved to", "went to", "went back to", "travelled to", "journeyed to")
MOVES = tuple(f"{{person}} {verb} the {{place}} ." for verb in VERBS)

LOOKS = "asked: "
"""How the name of a rule of thumb begins that looks at the question, and so is no measure of chance."""


class Task(Config, ABC):
    """The settings are the sizes."""

    @property
    @abstractmethod
    def names(self) -> dict[str, tuple[str, ...]]:
        """What the slots of the forms may be called."""

    @property
    @abstractmethod
    def forms(self) -> tuple[str, ...]:
        """The patterns of its sentences (see `language`)."""

    @property
    @abstractmethod
    def lines(self) -> tuple[tuple[int, ...], ...]:
        """For each line of a story the forms it may take."""

    @property
    def answers(self) -> tuple[str, ...]:
        """The places, where a task does not say otherwise."""
        return self.names["place"]

    @property
    def places_of_people(self) -> list[str]:
        """The factors that say where each person is."""
        return [f"place of {person}" for person in self.names["person"]]

    @property
    @abstractmethod
    def factors(self) -> dict[str, tuple[str, ...]]:
        """What is known at every token, and what the values mean; those that are tracked together stand together."""

    @property
    @abstractmethod
    def n_uniforms(self) -> int:
        """How many random numbers a story is made of."""

    @abstractmethod
    def generate(self, story: Story) -> None:
        """Generate the story that these random numbers make, line by line."""

    @abstractmethod
    def guess(self, story: Story) -> dict[str, Float[np.ndarray, "b q c"]]:
        """By rules of thumb, how likely each answer is; those that look at the question are named `asked: …`."""

    @property
    def askable(self) -> list[str]:
        """The factors, where a question is about any of them that is known."""
        return []

    def possible(self, story: Story) -> Int[np.ndarray, "b q n"] | None:
        """The answers to all that may be asked, each as likely, -1 where a thing is not known; None: it is no question.

        As `askable` says; a task whose factors do not hold these answers works them out.
        """
        known = [story.asked(name) for name in self.askable]
        return np.stack(known, axis=-1) if known else None

    @cached_property
    def script(self) -> Script:
        return Script(Sentences(tuple(map(Form, self.forms)), self.names), self.lines)

    def stories(self, uniforms: Float[np.ndarray, "b k"]) -> Story:
        """The stories that are made of these numbers."""
        story = Story(self.script, self.factors, uniforms)
        self.generate(story)
        return story

    def shortcuts(self, story: Story) -> dict[str, float]:
        """How often each rule of thumb is right, and as `chance` the best that does not look at the question.

        `without the question` is the most that is possible so: only above it has a model surely read the question.
        """
        guesses = {**_majorities(story.answers, len(self.answers)), **self.guess(story)}
        scores = {name: float(pick(guess, story.answers).mean()) for name, guess in guesses.items()}
        scores["chance"] = max(score for name, score in scores.items() if not name.startswith(LOOKS))
        possible = self.possible(story)
        if possible is not None:
            # Any of what is known may be asked for: the largest share of it that has one answer.
            shares = one_hot(possible, len(self.answers)).sum(2) / (possible >= 0).sum(-1, keepdims=True)
            scores["without the question"] = float(shares.max(-1).mean())
        return scores


def _majorities(answers: Int[np.ndarray, "b q"], classes: int) -> dict[str, Float[np.ndarray, "b q c"]]:
    shares = one_hot(answers, classes).mean(0)
    by_question = one_hot(shares.argmax(-1), classes).astype(float)
    overall = one_hot(shares.mean(0, keepdims=True).argmax(-1), classes).astype(float)
    return {
        "majority answer": np.broadcast_to(overall, (*answers.shape, classes)),
        "majority by question": np.broadcast_to(by_question, (*answers.shape, classes)),
    }


def guess_places(story: Story, classes: int) -> dict[str, Float[np.ndarray, "b q c"]]:
    """The place named last; and the one named most often, the first or the latest of them where there are several."""
    script, named = story.script, one_hot(story.stated("place"), classes)
    latest = last_occurrence(named)[:, script.statements_before]
    counts = len(script.statements) * np.cumsum(named, axis=1)[:, script.statements_before - 1]
    return {
        "last statement": certain(latest.argmax(-1), classes),
        "most frequent": certain((counts - named.argmax(1)[:, None]).argmax(-1), classes),
        "most frequent, latest": certain((counts + latest).argmax(-1), classes),
    }


def any_place_of_the_asked(story: Story, classes: int) -> Float[np.ndarray, "b q c"]:
    """Any place to which the person asked for has moved, each as likely."""
    theirs = story.stated("person")[:, None] == story.asked("person")[..., None]
    theirs &= np.arange(theirs.shape[2]) < story.script.statements_before[:, None]
    been = (theirs[..., None] & one_hot(story.stated("place"), classes)[:, None]).any(2)
    return been / np.maximum(been.sum(-1, keepdims=True), 1)


def certain(answers: Int[np.ndarray, "b q"], classes: int) -> Float[np.ndarray, "b q c"]:
    """This answer and no other; none where it is -1."""
    return one_hot(answers, classes).astype(float)


def pick(table: np.ndarray, index: Int[np.ndarray, "*any"]) -> np.ndarray:
    """The entry of each row of the last axis that the index names."""
    return np.take_along_axis(table, index[..., None], -1)[..., 0]


def one_hot(index: Int[np.ndarray, "*any"], count: int) -> Bool[np.ndarray, "*any n"]:
    """Which of so many the index names; none where it is -1."""
    return index[..., None] == np.arange(count, dtype=SMALL)


def last_occurrence(happens: Bool[np.ndarray, "b n *any"]) -> Int[np.ndarray, "b time *any"]:
    """The last statement at which it happened, before the first statement and after each; -1 for none."""
    numbers = np.arange(happens.shape[1], dtype=SMALL).reshape(-1, *[1] * (happens.ndim - 2))
    latest = np.maximum.accumulate(np.where(happens, numbers, -1), axis=1)
    return np.concatenate([np.full_like(latest[:, :1], -1), latest], axis=1)
