"""What a task can say: its sentences, and the order of its lines.

A form such as "{person} *took the {thing} ." stands for one sentence per choice of its names. Names in braces and words
with a star are *content words*: what they say is known from them on. All sentences of a task are numbered,

    number = first[form] + Σ_slot name[slot] · stride[slot, form]

so that stories are tables of numbers, and the words of a whole batch are looked up at once.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, product

import numpy as np

from unbraid.axes import Int

SPECIAL = ("<pad>", "<unk>", "<sep>", "<ssep>")
"""Padding, an unknown word, what stands before the question and what stands after each statement."""
PAD, _, SEP, SSEP = SPECIAL


@dataclass(frozen=True)
class Form:
    """A pattern of words with slots to be named."""

    text: str

    @property
    def parts(self) -> list[str]:
        return re.findall(r"\{.*?\}|\S+", self.text)

    @property
    def slots(self) -> list[str]:
        return [part.strip("{}") for part in self.parts if _is_slot(part)]

    @property
    def words(self) -> list[str]:
        return [part.removeprefix("*") for part in self.parts if not _is_slot(part)]

    @property
    def is_question(self) -> bool:
        return self.parts[-1] == "?"

    def fill(self, names: tuple[str, ...]) -> list[str]:
        """The words, with a name in each slot."""
        left = iter(names)
        return [next(left) if _is_slot(part) else part.removeprefix("*") for part in self.parts]

    def moments(self) -> list[int]:
        """For each word, how many content words have been read with it."""
        return list(accumulate(_is_slot(part) or part.startswith("*") for part in self.parts))


def _is_slot(part: str) -> bool:
    return part.startswith("{")


@dataclass(frozen=True)
class Sentences:
    """Every sentence that these forms and names make, numbered."""

    forms: tuple[Form, ...]
    names: Mapping[str, tuple[str, ...]]
    separated: bool = False
    """Whether each statement ends in <ssep> and each question begins with <sep>."""

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        named = [name for names in self.names.values() for name in names]
        return tuple(dict.fromkeys([*SPECIAL, *named, *(word for form in self.forms for word in form.words)]))

    @cached_property
    def depth(self) -> int:
        """Moments of a sentence at which something new may be known: its beginning, and each content word."""
        return 1 + max(form.moments()[-1] for form in self.forms)

    def number(
        self, form: int | Int[np.ndarray, "b"], names: Mapping[str, Int[np.ndarray, "b"]]
    ) -> Int[np.ndarray, "b"] | np.integer:
        """The number of the sentence of this form with these names; a name that it has no slot for is ignored."""
        number = self._first[form]
        for slot, stride in self._strides.items():
            if slot in names:
                number = number + stride[form] * names[slot]
        return number

    def length(self, form: int) -> int:
        return len(self.forms[form].parts) + self.separated

    @cached_property
    def lengths(self) -> Int[np.ndarray, "n"]:
        return np.array([len(words) for words, _ in self._all])

    @cached_property
    def starts(self) -> Int[np.ndarray, "n"]:
        """Where in `words` each sentence begins."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def words(self) -> Int[np.ndarray, "w"]:
        """The words of all sentences, one after the other."""
        ids = {word: number for number, word in enumerate(self.vocabulary)}
        return np.array([ids[word] for words, _ in self._all for word in words])

    @cached_property
    def moments(self) -> Int[np.ndarray, "w"]:
        """For each of `words`, how many content words of its sentence have been read with it."""
        return np.array([count for _, moments in self._all for count in moments])

    @cached_property
    def _all(self) -> list[tuple[list[str], list[int]]]:
        return [
            self._separate(form, form.fill(names), form.moments())
            for form in self.forms
            for names in product(*(self.names[slot] for slot in form.slots))
        ]

    def _separate(self, form: Form, words: list[str], moments: list[int]) -> tuple[list[str], list[int]]:
        if not self.separated:
            return words, moments
        return ([SEP, *words], [0, *moments]) if form.is_question else ([*words, SSEP], [*moments, moments[-1]])

    @cached_property
    def _first(self) -> Int[np.ndarray, "form"]:
        sizes = [int(np.prod([len(self.names[slot]) for slot in form.slots], dtype=int)) for form in self.forms]
        return np.cumsum([0, *sizes])[:-1]

    @cached_property
    def _strides(self) -> dict[str, Int[np.ndarray, "form"]]:
        strides = {slot: np.zeros(len(self.forms), int) for slot in self.names}
        for column, form in enumerate(self.forms):
            size = 1
            for slot in reversed(form.slots):
                strides[slot][column] = size
                size *= len(self.names[slot])
        return strides


@dataclass(frozen=True)
class Script:
    """The order of a task's lines, the same in all of its stories."""

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
    def statements_before(self) -> Int[np.ndarray, "q"]:
        """How many statements stand before each question."""
        return np.searchsorted(self.statements, self.questions)

    @property
    def longest_story(self) -> int:
        """Tokens of the longest sequence of all lines."""
        return sum(self._longest(forms) for forms in self.lines)

    @property
    def longest_question(self) -> int:
        """Tokens of the longest sequence of statements and one question."""
        stated = sum(self._longest(self.lines[line]) for line in self.statements)
        return stated + max(self._longest(self.lines[line]) for line in self.questions)

    def separated(self) -> "Script":
        """The same lines, with separators between them."""
        return Script(replace(self.sentences, separated=True), self.lines)

    def _asks(self, forms: tuple[int, ...]) -> bool:
        return self.sentences.forms[forms[0]].is_question

    def _longest(self, forms: tuple[int, ...]) -> int:
        return max(self.sentences.length(form) for form in forms)
