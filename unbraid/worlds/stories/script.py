"""The order of a task's lines, the same in all of its stories, and what is known at each moment of each line.

A line has a moment for its beginning and one for each telling word: what that tells is known from its own moment on.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unbraid.axes import Int
from unbraid.worlds.stories.sentences import Sentences


@dataclass(frozen=True)
class Script:
    sentences: Sentences
    lines: tuple[tuple[int, ...], ...]
    """For each line the forms it may take; those of a line are all statements or all questions."""

    @cached_property
    def statements(self) -> Int[np.ndarray, "n"]:
        """Which lines are statements."""
        return np.array([line for line, forms in enumerate(self.lines) if not self._asks(forms)])

    @cached_property
    def questions(self) -> Int[np.ndarray, "q"]:
        """Which lines are questions."""
        return np.array([line for line, forms in enumerate(self.lines) if self._asks(forms)])

    @cached_property
    def told(self) -> Int[np.ndarray, "q"]:
        """How many statements stand before each question."""
        return np.searchsorted(self.statements, self.questions)

    @property
    def together(self) -> int:
        """Tokens of the longest sequence of all lines."""
        return sum(self._longest(forms) for forms in self.lines)

    @property
    def single(self) -> int:
        """Tokens of the longest sequence of statements and one question."""
        stated = sum(self._longest(self.lines[line]) for line in self.statements)
        return stated + max(self._longest(self.lines[line]) for line in self.questions)

    def separated(self) -> "Script":
        """The same lines, with what stands between them when there is only one question."""
        return Script(replace(self.sentences, separated=True), self.lines)

    def number(self, stated: Int[np.ndarray, "b n"], asked: Int[np.ndarray, "b q"]) -> Int[np.ndarray, "b line"]:
        """The numbers of the sentences said, statements and questions each on their line."""
        numbers = np.empty((len(stated), len(self.lines)), int)
        numbers[:, self.statements], numbers[:, self.questions] = stated, asked
        return numbers

    def kinds(self, stories: int) -> Int[np.ndarray, "b row moment"]:
        """0 in statements, 1 in questions."""
        table = self._unknown(stories)
        table[:, self.statements], table[:, self.questions] = 0, 1
        return table

    def mentioned(
        self,
        stated: Int[np.ndarray, "b n"] | None = None,
        asked: Int[np.ndarray, "b q"] | None = None,
        since: int = 1,
        asked_since: int = 1,
    ) -> Int[np.ndarray, "b row moment"]:
        """What a line speaks of, from the telling word number `since` to the end of the line."""
        given = [(self.statements, stated, since), (self.questions, asked, asked_since)]
        table = self._unknown(max(len(values) for _, values, _ in given if values is not None))
        for lines, values, first in given:
            if values is not None:
                table[:, lines, first:] = values[:, :, None]
        return table

    def tracked(self, states: Int[np.ndarray, "b time thing"], since: int = 2) -> Int[np.ndarray, "thing b row moment"]:
        """What is so of each thing before and after every statement, which changes it with its telling word `since`."""
        tables = self._unknown(states.shape[2], len(states))
        seen = np.searchsorted(self.statements, np.arange(len(self.lines) + 1))
        each = np.moveaxis(states, 2, 0).astype(tables.dtype, order="C")[..., None]
        tables[:, :, :-1, :since] = each[:, :, seen[:-1]]
        tables[:, :, :-1, since:] = each[:, :, seen[1:]]
        return tables

    def _unknown(self, *axes: int) -> Int[np.ndarray, "*axes row moment"]:
        """Nothing known anywhere; the line after the last is padding."""
        return np.full((*axes, len(self.lines) + 1, self.sentences.depth), -1, np.int8)

    def _asks(self, forms: tuple[int, ...]) -> bool:
        return self.sentences.forms[forms[0]].asks

    def _longest(self, forms: tuple[int, ...]) -> int:
        return max(self.sentences.length(form) for form in forms)
