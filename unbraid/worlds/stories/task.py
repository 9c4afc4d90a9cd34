"""What a task is: sizes, sentences and the order of lines, and a rule that makes stories out of dice."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unbraid.axes import Bool, Float, Int
from unbraid.config import Record
from unbraid.worlds.stories.script import Script
from unbraid.worlds.stories.sentences import Form, Sentences

GIRLS_AND_BOYS = ("mary", "john", "sandra", "daniel", "julie", "bill", "emily", "fred")
"""Girls at even places, boys at odd ones."""
LINES = ("statement", "question")
PLACES = ("kitchen", "garden", "office", "bathroom", "bedroom", "hallway")
VERBS = ("moved to", "went to", "went back to", "travelled to", "journeyed to")
MOVES = tuple(f"{{person}} {verb} the {{place}} ." for verb in VERBS)


LOOKS = "asked: "
"""How the name of a rule of thumb begins that looks at the question, and so is no measure of chance."""


@dataclass(frozen=True)
class Tale:
    """Stories before they become tokens: the sentences said, the answers, what is known at each moment of a line."""

    sentences: Int[np.ndarray, "b line"]
    answers: Int[np.ndarray, "b q"]
    support: Bool[np.ndarray, "b q n"]
    """Which statements each answer follows from."""
    factors: dict[str, Int[np.ndarray, "b row moment"]]


class Task(Record, ABC):
    """The settings are the sizes; stories are made from numbers in [0, 1), so many a story as `dice` says."""

    @property
    @abstractmethod
    def names(self) -> dict[str, tuple[str, ...]]:
        """What the parts in braces may be called."""

    @property
    @abstractmethod
    def forms(self) -> tuple[str, ...]: ...

    @property
    @abstractmethod
    def lines(self) -> tuple[tuple[int, ...], ...]:
        """For each line of a story the forms it may take."""

    @property
    @abstractmethod
    def answers(self) -> tuple[str, ...]: ...

    @property
    @abstractmethod
    def factors(self) -> dict[str, tuple[str, ...]]: ...

    @property
    @abstractmethod
    def dice(self) -> int: ...

    @abstractmethod
    def tell(self, dice: Float[np.ndarray, "b k"]) -> Tale: ...

    @abstractmethod
    def guess(self, tale: Tale) -> dict[str, Float[np.ndarray, "b q c"]]:
        """By rules of thumb, how likely each answer is; those that look at the question are named `asked: …`."""

    @property
    def askable(self) -> list[str]:
        """The factors, where a question is about any of them that is known."""
        return []

    def possible(self, tale: Tale) -> Int[np.ndarray, "b q n"] | None:
        """The answers to all that may be asked, each as likely, -1 where a thing is not known; None: it is no question.

        As `askable` says; a task whose factors do not hold these answers works them out.
        """
        known = [tale.factors[name][:, self.script.questions, -1] for name in self.askable]
        return np.stack(known, axis=-1) if known else None

    @cached_property
    def script(self) -> Script:
        return Script(Sentences(tuple(map(Form, self.forms)), self.names), self.lines)
