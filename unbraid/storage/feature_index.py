"""The feature index on disk: what every learned feature of a stack fires on. Numbers only, read without torch.

feature_index.safetensors, "MEMBER.NAME" for each member of the stack, f features:

    rate f             share of the indexed rows on which it fires
    mean, largest f    of its values where it fires
    low, high f, histogram f 16
                       how often its values lie in 16 equal bins from low to high
    strongest f 8      rows of its largest values, strongest first; strongest_value f 8
    even f 8           rows drawn evenly from the smallest value to the largest; even_value f 8
    agree, without_concept, without_feature f 4
                       rows on which it fires with its concept; without it; on which the concept is on and it is silent
    WHICH_around f k 17
                       its values at the 8 tokens before, the token itself and the 8 after, of each row in WHICH
    token f 8, token_count f 8
                       the tokens it fires on most often
    neighbour f 5, neighbour_cosine f 5
                       the features whose directions are most like its own
    concept, phi, precision, recall f
                       the concept that is on most nearly when it fires (Matthews' φ of both), or -1
    answer f 6, answer_logit f 6
                       the logit lens: the three answers (of a language model, tokens) whose logits a unit of it raises
                       most, then the three it lowers most
    effect, effect_questions f
                       mean change of the correct answer's log-probability when it is ablated in the stories of its
                       strongest contexts, and over how many questions; NaN where it fires before none

The last two where there is a model; `evaluation/feature_effects.py` has the formulas.

A row of -1 is none. contexts.safetensors has, once a stack, what the rows are:

    tokens n, documents n       of text; missing where a row is a sample of a planted world
    truth_start n + 1, truth k, truth_strength k
                                the concepts that are on at each row, by number, and how strongly
    lens_exact 1                whether the logit lens is a feature's share of the logits, up to the final norm's
                                division; 0: the direct path alone
    vocabulary, concepts, answers
                                names, as UTF-8 bytes with NAME_start; without answers, these are the vocabulary
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from unbraid.errors import UserError
from unbraid.storage.files import Arrays, write_arrays

INDEX, CONTEXTS = "feature_index.safetensors", "contexts.safetensors"
STRONGEST, EVEN, EXAMPLES, TOKENS, NEIGHBOURS, BINS, AROUND, ANSWERS = 8, 8, 4, 8, 5, 16, 8, 3
WHICH = ("strongest", "even", "agree", "without_concept", "without_feature")
"""The lists of rows that a feature has."""


@dataclass(frozen=True)
class Context:
    """A row and what is around it: tokens with this feature's values, or the planted features of a sample."""

    row: int
    value: float
    tokens: list[str]
    """Empty where a row is a sample of a planted world."""
    values: list[float]
    """Of the feature, at each token."""
    position: int
    """Which of the tokens the row is."""
    truth: list[list[tuple[str, float]]]
    """The concepts that are on, with their strength, at each token; one list where there are no tokens."""


@dataclass(frozen=True)
class FeatureRecord:
    """All that is known of one feature."""

    feature: int
    numbers: dict[str, float]
    """rate, mean, largest, phi, precision, recall."""
    concept: str | None
    concept_number: int
    histogram: list[tuple[float, float, int]]
    """Low and high edge of each bin, and how many values lie in it."""
    contexts: dict[str, list[Context]]
    """By the name of the list: strongest, even, agree, without_concept, without_feature."""
    tokens: list[tuple[str, float]]
    """The tokens it fires on most often, and how often."""
    neighbours: list[tuple[int, float]]
    answers: list[tuple[str, float]]
    """The logit lens: what it raises most, then what it lowers most, with the change of the logit a unit of it."""
    effect: float
    """Mean change of the correct answer's log-probability when it is ablated; NaN where that is not known."""
    effect_questions: int


def pack_names(name: str, words: list[str]) -> Arrays:
    """Words as bytes, one after the other, and where each starts."""
    parts = [word.encode("utf-8", "replace") for word in words]
    starts = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return {name: np.frombuffer(b"".join(parts) or b"\0", dtype=np.uint8).copy(), f"{name}_start": starts}


def write_index(folder: Path, members: dict[int, Arrays], contexts: Arrays) -> None:
    """Write both files into the folder of a stack."""
    write_arrays(folder / INDEX, {f"{member}.{key}": v for member, own in members.items() for key, v in own.items()})
    write_arrays(folder / CONTEXTS, contexts)


class FeatureIndex:
    """The feature index of one stack; arrays are read from disk when they are asked for."""

    def __init__(self, folder: Path) -> None:
        try:
            self._index = safe_open(folder / INDEX, framework="numpy")
            self._contexts = safe_open(folder / CONTEXTS, framework="numpy")
        except (SafetensorError, OSError) as problem:
            raise UserError(
                f"{folder / INDEX} cannot be read ({problem}); accepted: the file as the run left it"
            ) from None
        self._names: dict[int, set[str]] = {}
        for key in self._index.keys():  # noqa: SIM118 a safetensors file is no dictionary
            member, _, name = key.partition(".")
            self._names.setdefault(int(member), set()).add(name)
        self._tables = set(self._contexts.keys())

    @classmethod
    def open(cls, folder: Path) -> "FeatureIndex | None":
        """The index in the folder of a stack; None where there is none."""
        return cls(folder) if (folder / INDEX).is_file() and (folder / CONTEXTS).is_file() else None

    @property
    def members(self) -> list[int]:
        return sorted(self._names)

    @property
    def has_tokens(self) -> bool:
        """Whether rows are tokens of a text; else they are samples."""
        return "tokens" in self._tables

    @cached_property
    def lens_is_exact(self) -> bool:
        """Whether the lens is a feature's share of the logits, up to the norm's division; else the direct path."""
        return "lens_exact" in self._tables and bool(self._contexts.get_tensor("lens_exact")[0])

    def features(self, member: int) -> int:
        return self._index.get_slice(f"{member}.rate").get_shape()[0]

    def table(self, member: int) -> Arrays:
        """One value a feature, for a data frame; `concept` is a number, -1 for none."""
        names = ("rate", "mean", "largest", "concept", "phi", "precision", "recall")
        return {name: self._index.get_tensor(f"{member}.{name}") for name in names if name in self._names[member]}

    @cached_property
    def concepts(self) -> list[str]:
        """The names of the concepts; empty where nothing is known of the rows."""
        return self._words("concepts")

    @cached_property
    def vocabulary(self) -> list[str]:
        return self._words("vocabulary")

    def _words(self, name: str) -> list[str]:
        if name not in self._tables:
            return []
        data, starts = self._contexts.get_tensor(name).tobytes(), self._contexts.get_tensor(f"{name}_start")
        return [data[a:b].decode() for a, b in pairwise(starts)]

    def search(self, member: int, text: str) -> np.ndarray:
        """The features whose most frequent tokens, or whose concept, contain a text; in their order."""
        text = text.casefold()
        found = np.zeros(self.features(member), dtype=bool)
        for words, name in ((self.concepts, "concept"), (self.vocabulary, "token")):
            if name in self._names[member]:
                known = [number for number, word in enumerate(words) if text in word.casefold()]
                hits = np.isin(self._index.get_tensor(f"{member}.{name}"), known)
                found |= hits if hits.ndim == 1 else hits.any(1)
        return np.flatnonzero(found)

    def top_tokens(self, member: int, features: np.ndarray) -> list[list[str]]:
        """The tokens each of these features fires on most often."""
        tokens = self._index.get_tensor(f"{member}.token")[features]
        return [[self.vocabulary[token] for token in row if token >= 0] for row in tokens.tolist()]

    def feature(self, member: int, feature: int) -> FeatureRecord:
        """All that is known of one feature."""
        own = {
            name: np.asarray(self._index.get_slice(f"{member}.{name}")[feature : feature + 1][0])
            for name in self._names[member]
        }
        edges = np.linspace(own["low"], own["high"], BINS + 1).tolist()
        concept = int(own.get("concept", -1))
        number_names = ("rate", "mean", "largest", "phi", "precision", "recall")
        return FeatureRecord(
            feature=feature,
            numbers={name: float(own[name]) for name in number_names if name in own},
            concept=self.concepts[concept] if concept >= 0 else None,
            concept_number=concept,
            histogram=list(zip(edges[:-1], edges[1:], own["histogram"].tolist(), strict=True)),
            contexts={which: self._of(which, own) for which in WHICH if which in own},
            tokens=self._pairs(own, "token", "token_count", self.vocabulary),
            neighbours=[
                (int(n), float(c)) for n, c in zip(own["neighbour"], own["neighbour_cosine"], strict=True) if n >= 0
            ],
            answers=self._pairs(own, "answer", "answer_logit", self._words("answers") or self.vocabulary),
            effect=float(own.get("effect", np.nan)),
            effect_questions=int(own.get("effect_questions", 0)),
        )

    @staticmethod
    def _pairs(own: Arrays, name: str, value: str, words: list[str]) -> list[tuple[str, float]]:
        if name not in own:
            return []
        return [(words[n], float(v)) for n, v in zip(own[name].tolist(), own[value].tolist(), strict=True) if n >= 0]

    def _of(self, which: str, own: Arrays) -> list[Context]:
        """The contexts of one list."""
        rows = own[which].tolist()
        values = own.get(f"{which}_value", np.full(len(rows), np.nan))
        around = own.get(f"{which}_around")
        return [
            self._context(row, float(values[place]), None if around is None else around[place])
            for place, row in enumerate(rows)
            if row >= 0
        ]

    def _context(self, row: int, value: float, around: np.ndarray | None) -> Context:
        if around is None:
            return Context(row, value, [], [], 0, self._truth(row, row + 1))
        start, end = self._window(row)
        tokens = self._contexts.get_slice("tokens")[start:end]
        values = around[AROUND - (row - start) : AROUND + (end - row)].astype(float).tolist()
        value = float(around[AROUND]) if np.isnan(value) else value
        words = [self.vocabulary[token] for token in tokens]
        return Context(row, value, words, values, row - start, self._truth(start, end))

    def _window(self, row: int) -> tuple[int, int]:
        """The rows around one that are of the same document."""
        documents = self._contexts.get_slice("documents")
        first = max(0, row - AROUND)
        near = documents[first : min(row + AROUND + 1, documents.get_shape()[0])]
        same = np.flatnonzero(near == near[row - first])
        return first + int(same[0]), first + int(same[-1]) + 1

    def _truth(self, start: int, end: int) -> list[list[tuple[str, float]]]:
        if "truth_start" not in self._tables:
            return [[] for _ in range(start, end)]
        starts = self._contexts.get_slice("truth_start")[start : end + 1].tolist()
        first, last = starts[0], starts[-1]
        numbers = self._contexts.get_slice("truth")[first:last].tolist() if last > first else []
        strengths = self._contexts.get_slice("truth_strength")[first:last].tolist() if last > first else []
        named = [(self.concepts[n], float(s)) for n, s in zip(numbers, strengths, strict=True)]
        return [named[a - first : b - first] for a, b in pairwise(starts)]
