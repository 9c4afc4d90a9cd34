"""A story, generated line by line, and the random choices in it.

A task's `generate` reads as if it made one story. In truth it makes many at once: every value is an array with one
entry per story (axis b), and `place_of[person]` is, in each story, the place of that story's person. What differs
between stories is decided with `np.where` instead of `if`.

    story = Story(script, factors, uniforms)
    place_of = story.track(["place of mary", "place of john"])     # known at every token from now on
    place_of[person] = place
    story.state(form, {"person": person}, {"place": place})          # a dictionary for each content word of the form
    story.ask(form, {"person": person}, answer=place_of[person], support=last_move[person])
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories.language import Script

SMALL = np.int16
"""What stories count in: narrow numbers are quicker to move."""


def choose(uniform: Float[np.ndarray, "b"], count: int) -> Int[np.ndarray, "b"]:
    """One of so many, each as likely."""
    return (uniform * count).astype(SMALL)


def choose_among(uniform: Float[np.ndarray, "b"], allowed: Bool[np.ndarray, "n b"]) -> Int[np.ndarray, "b"]:
    """One of those allowed, each as likely; there must be one."""
    cumulative = np.cumsum(allowed, axis=0, dtype=SMALL)
    return (cumulative > (uniform * cumulative[-1]).astype(SMALL)).argmax(0)


def choose_weighted(uniform: Float[np.ndarray, "b"], weights: Int[np.ndarray, "n b"]) -> Int[np.ndarray, "b"]:
    """One of several, each as likely as its weight says."""
    cumulative = np.cumsum(weights, axis=0)
    return (cumulative > (uniform * cumulative[-1]).astype(int)).argmax(0)


def choose_other(uniform: Float[np.ndarray, "b"], here: Int[np.ndarray, "b"], count: int) -> Int[np.ndarray, "b"]:
    """One of so many but not this one, each as likely; where this is -1, any."""
    return np.where(here < 0, choose(uniform, count), (here + 1 + choose(uniform, count - 1)) % count)


def shuffle(uniforms: Float[np.ndarray, "n b"]) -> Int[np.ndarray, "n b"]:
    """The numbers below n in any order, each as likely."""
    return uniforms.T.argsort(-1).T


class Table:
    """A number for each of several things, in every story: `table[thing]` is read and set as an entry of a list is."""

    def __init__(self, values: Int[np.ndarray, "*things b"]) -> None:
        self.values = values
        self._stories = np.arange(values.shape[-1])

    def __getitem__(self, thing: Any) -> np.ndarray:
        return self.values[self._index(thing)]

    def __setitem__(self, thing: Any, value: Any) -> None:
        self.values[self._index(thing)] = value

    def set(self, thing: Int[np.ndarray, "b"], value: Any, where: Bool[np.ndarray, "b"]) -> None:
        """Set the entry in those stories alone."""
        self[np.where(where, thing, 0)] = np.where(where, value, self[np.where(where, thing, 0)])

    def _index(self, thing: Any) -> tuple[Any, ...]:
        return (*(thing if isinstance(thing, tuple) else (thing,)), self._stories)


class Story:
    """What has been said, asked and answered so far, and what is known at every moment of every line.

    A line has a moment for its beginning and one for each content word: what that says is known from its own moment
    on. The line after the last is padding, where nothing is known.
    """

    def __init__(self, script: Script, factors: Iterable[str], uniforms: Float[np.ndarray, "b k"]) -> None:
        names, stories, lines = list(factors), len(uniforms), len(script.lines)
        self.script = script
        self.uniforms = np.ascontiguousarray(uniforms.T)
        """Random numbers in [0, 1), k for each story: whatever is drawn is made of these."""
        self.sentences = np.zeros((stories, lines), int)
        """The number of the sentence said on each line."""
        self.answers = np.zeros((stories, len(script.questions)), int)
        self._support = np.zeros((stories, len(script.questions), len(script.statements) + 1), bool)
        self._known = np.full((len(names), lines + 1, script.sentences.depth, stories), -1, np.int8)
        self._factors = {name: number for number, name in enumerate(names)}
        self._tracked: list[tuple[slice, int, Table, np.ndarray]] = []
        self._said = self._asked = 0
        self._known[self._factors["line"], script.statements] = 0
        self._known[self._factors["line"], script.questions] = 1

    def table(self, *things: int) -> Table:
        """A number for each thing, -1 so far; known to the generator alone."""
        return Table(np.full((*things, len(self.sentences)), -1, SMALL))

    def track(self, factors: Sequence[str], since: int | None = None, start: int = -1) -> Table:
        """A number for each factor that is known at every token: a statement changes it with its last content word.

        `since`: with another of its content words; `start`: the number before the first statement.
        """
        table, first = self.table(len(factors)), self._factors[factors[0]]
        table.values[:] = start
        since = self.script.sentences.depth - 1 if since is None else since
        self._tracked.append((slice(first, first + len(factors)), since, table, table.values.copy()))
        return table

    def state(self, form: int | Int[np.ndarray, "b"], *facts: dict[str, Int[np.ndarray, "b"]]) -> int:
        """Say a statement, after which the tracked tables are as they are now; returns its number.

        `facts` holds, for each content word, what is known from it to the end of the line.
        """
        self._write_line(form, facts)
        self._said += 1
        return self._said - 1

    def ask(
        self,
        form: int,
        *facts: dict[str, Int[np.ndarray, "b"]],
        answer: Int[np.ndarray, "b"],
        support: Int[np.ndarray, "*n b"],
    ) -> None:
        """Ask a question; `support` are the numbers of the statements that the answer follows from, or -1."""
        self.answers[:, self._asked] = answer
        self._support[np.arange(len(self.answers)), self._asked, support] = True  # -1 is the last, which is left out
        self._write_line(form, (*facts[:-1], {**facts[-1], "answer": answer}))
        self._asked += 1

    def _write_line(self, form: int | Int[np.ndarray, "b"], facts: tuple[dict[str, Int[np.ndarray, "b"]], ...]) -> None:
        line = self._said + self._asked
        known = self._known[:, line]
        for factors, since, table, before in self._tracked:
            known[factors, :since] = before[:, None]
            known[factors, since:] = table.values[:, None]
            before[:] = table.values
        names: dict[str, np.ndarray] = {}
        for moment, new in enumerate(facts, start=1):
            names |= new
            for name, value in new.items():
                if name in self._factors:
                    known[self._factors[name], moment:] = value
        self.sentences[:, line] = self.script.sentences.number(form, names)

    @property
    def support(self) -> Bool[np.ndarray, "b q n"]:
        """Which statements each answer follows from."""
        return self._support[..., :-1]

    def stated(self, factor: str) -> Int[np.ndarray, "b n"]:
        """What each statement says of this, when it has been read."""
        return self._known[self._factors[factor], self.script.statements, -1].T

    def asked(self, factor: str) -> Int[np.ndarray, "b q"]:
        """What each question says of this, when it has been read."""
        return self._known[self._factors[factor], self.script.questions, -1].T

    @property
    def factors(self) -> dict[str, Int[np.ndarray, "row moment b"]]:
        """What is known at each moment of each line."""
        return {name: self._known[number] for name, number in self._factors.items()}

    def cells(
        self, stories: Int[np.ndarray, "e 1"], lines: Int[np.ndarray, "e t"], moments: Int[np.ndarray, "e t"]
    ) -> Int[np.ndarray, "e t"]:
        """Where in a table of `factors`, as one list, a moment of a line of a story stands."""
        return (lines * self.script.sentences.depth + moments) * len(self.sentences) + stories
