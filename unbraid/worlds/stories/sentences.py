"""Every sentence a task can say, numbered, so that a story is a table of numbers and its text is looked up.

A form such as "{person} went back to the {place} ." stands for one sentence per choice of its names:

    number = first[form] + Σ_i name_i · stride[form, i]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product

import numpy as np

from unbraid.axes import Int

SPECIAL = ("<pad>", "<unk>", "<sep>", "<ssep>")
"""Padding, a word never met, what stands before the question and what stands after each statement."""
PAD, _, SEP, SSEP = SPECIAL


@dataclass(frozen=True)
class Form:
    """A pattern of words: those in braces are to be named, those with a star tell something as a name does."""

    text: str

    @property
    def parts(self) -> list[str]:
        return self.text.split()

    @property
    def slots(self) -> list[str]:
        return [part.strip("{}") for part in self.parts if _is_slot(part)]

    @property
    def words(self) -> list[str]:
        return [part.removeprefix("*") for part in self.parts if not _is_slot(part)]

    @property
    def asks(self) -> bool:
        return self.parts[-1] == "?"

    def say(self, names: Sequence[str]) -> list[str]:
        left = iter(names)
        return [next(left) if _is_slot(part) else part.removeprefix("*") for part in self.parts]

    def read(self) -> list[int]:
        """For each word, how many telling words have been read with it."""
        return list(accumulate(_is_slot(part) or part.startswith("*") for part in self.parts))


def _is_slot(part: str) -> bool:
    return part.startswith("{")


@dataclass(frozen=True)
class Sentences:
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
        """At how many moments of a sentence something new may be known: at its beginning, and at each telling word."""
        return 1 + max(form.read()[-1] for form in self.forms)

    def number(self, forms: int | Int[np.ndarray, "..."], *names: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """The number of the sentence of this form with these names."""
        number = self._first[forms]
        for slot, name in enumerate(names):
            number = number + self._strides[slot][forms] * name
        return number

    def length(self, form: int) -> int:
        return len(self.forms[form].parts) + self.separated

    @cached_property
    def lengths(self) -> Int[np.ndarray, "n"]:
        return np.array([len(words) for words, _ in self._said])

    @cached_property
    def starts(self) -> Int[np.ndarray, "n"]:
        """Where in `words` each sentence begins."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def words(self) -> Int[np.ndarray, "w"]:
        """The words of all sentences, one after the other."""
        ids = {word: number for number, word in enumerate(self.vocabulary)}
        return np.array([ids[word] for words, _ in self._said for word in words])

    @cached_property
    def read(self) -> Int[np.ndarray, "w"]:
        """For each of `words`, how many telling words of its sentence have been read with it."""
        return np.array([count for _, read in self._said for count in read])

    @cached_property
    def _said(self) -> list[tuple[list[str], list[int]]]:
        return [
            self._separate(form, form.say(names), form.read())
            for form in self.forms
            for names in product(*(self.names[slot] for slot in form.slots))
        ]

    def _separate(self, form: Form, words: list[str], read: list[int]) -> tuple[list[str], list[int]]:
        if not self.separated:
            return words, read
        return ([SEP, *words], [0, *read]) if form.asks else ([*words, SSEP], [*read, read[-1]])

    @cached_property
    def _first(self) -> Int[np.ndarray, "form"]:
        return np.cumsum([0, *self._sizes])[:-1]

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(np.prod([len(self.names[slot]) for slot in form.slots], dtype=int)) for form in self.forms]

    @cached_property
    def _strides(self) -> Int[np.ndarray, "slot form"]:
        strides = np.zeros((self.depth, len(self.forms)), int)
        for column, form in enumerate(self.forms):
            size = 1
            for slot in reversed(range(len(form.slots))):
                strides[slot, column] = size
                size *= len(self.names[form.slots[slot]])
        return strides
