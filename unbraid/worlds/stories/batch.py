"""Stories become tokens: all lines in one sequence, or the statements so far and one question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from unbraid.axes import Bool, Int, Tensor
from unbraid.worlds.stories.language import SEP, SPECIAL, SSEP, Script
from unbraid.worlds.stories.story import Story

SEPARATORS = (SPECIAL.index(SEP), SPECIAL.index(SSEP))
LIMIT = 180
"""A sequence with one question keeps this many tokens, the last ones (as in the head-constraints study)."""


@dataclass(frozen=True)
class StoryBatch:
    """Sequences, the questions in them, and what is known at every token."""

    tokens: Int[Tensor, "b t"]
    """Padded with 0 at the right, to the longest of the batch."""
    asked: Int[Tensor, "b q"]
    """The position of the question mark, where the answer is read."""
    answers: Int[Tensor, "b q"]
    support: Bool[Tensor, "b q t"]
    """The tokens of the statements that the answer follows from; separators are not among them."""
    factors: dict[str, Int[Tensor, "b t"]]
    """The value of each factor as far as one has read; -1 where there is none (padding, or not yet known)."""

    @property
    def mask(self) -> Bool[Tensor, "b t"]:
        """The tokens that are not padding."""
        return self.tokens != 0

    def first(self, amount: int) -> "StoryBatch":
        """The first so many sequences."""
        return self.select(slice(amount))

    def select(self, rows: slice | Int[Tensor, "n"]) -> "StoryBatch":
        """These sequences, by their numbers."""
        return StoryBatch(
            self.tokens[rows],
            self.asked[rows],
            self.answers[rows],
            self.support[rows],
            {name: values[rows] for name, values in self.factors.items()},
        )


def joined(batches: Sequence[StoryBatch]) -> StoryBatch:
    """Several batches as one, padded to the longest."""
    length = max(batch.tokens.shape[1] for batch in batches)

    def together(parts: list[Tensor], fill: int) -> Tensor:
        return torch.cat([functional.pad(part, (0, length - part.shape[-1]), value=fill) for part in parts])

    return StoryBatch(
        together([batch.tokens for batch in batches], 0),
        torch.cat([batch.asked for batch in batches]),
        torch.cat([batch.answers for batch in batches]),
        together([batch.support for batch in batches], 0),
        {name: together([batch.factors[name] for batch in batches], -1) for name in batches[0].factors},
    )


@dataclass(frozen=True)
class MinimalPairs:
    """Pairs of sequences that differ in exactly one word, and what is known at every token of either."""

    base: StoryBatch
    other: StoryBatch

    def select(self, rows: slice | Int[Tensor, "n"]) -> "MinimalPairs":
        """These pairs, by their numbers."""
        return MinimalPairs(self.base.select(rows), self.other.select(rows))

    def differs(self, factor: str) -> Bool[Tensor, "b t"]:
        """The tokens at which the two have other values of a factor."""
        return self.base.factors[factor] != self.other.factors[factor]


@dataclass(frozen=True)
class Layout:
    """Which lines of which story each sequence holds, and which of that story's questions it asks."""

    stories: Int[np.ndarray, "e"]
    keeps: Bool[np.ndarray, "e line"]
    asks: Int[np.ndarray, "e q"]


def together(script: Script, stories: int) -> Layout:
    """A story is one sequence, each question asked where it stands."""
    rows = np.arange(stories)
    keeps = np.ones((stories, len(script.lines)), bool)
    return Layout(rows, keeps, np.broadcast_to(np.arange(len(script.questions)), (stories, len(script.questions))))


def single(script: Script, stories: Int[np.ndarray, "e"], questions: Int[np.ndarray, "e"]) -> Layout:
    """A question is one sequence: the statements before it, no other question, and it."""
    lines, asked = np.arange(len(script.lines)), script.questions[questions][:, None]
    keeps = ((lines < asked) & ~np.isin(lines, script.questions)) | (lines == asked)
    return Layout(stories, keeps, questions[:, None])


def write(story: Story, script: Script, layout: Layout) -> StoryBatch:
    """The tokens of stories, and what is known at each; `script` has separators if the layout is `single`."""
    sentences, sequences = script.sentences, np.arange(len(layout.stories))[:, None]
    numbers = story.sentences[layout.stories]
    lengths = np.where(layout.keeps, sentences.lengths[numbers], 0)
    ends = np.cumsum(lengths, axis=1)
    totals = ends[:, -1:]
    width = int(totals.max())
    # The line of each token, counted through all sequences; the line after a sequence's last one is its padding.
    lines = np.repeat(
        np.arange(lengths.size + len(lengths)), np.concatenate([lengths, width - totals], axis=1).ravel()
    ).reshape(-1, width)
    # Where each token's word stands among those of all sentences; behind them, for padding, is nothing but padding.
    begins = np.concatenate([sentences.starts[numbers] - ends + lengths, len(sentences.words) - totals], axis=1)
    cells = begins.take(lines)
    cells += np.arange(width)
    moments = np.concatenate([sentences.moments, np.zeros(width, int)]).take(cells)
    written = _Written(
        tokens=np.concatenate([sentences.words, np.zeros(width, int)]).take(cells),
        asked=np.take_along_axis(ends, script.questions[layout.asks], 1) - 1,
        support=_mark(story, script, layout).take(lines, axis=0).swapaxes(1, 2),
        known=story.cells(layout.stories[:, None], lines - (len(script.lines) + 1) * sequences, moments),
    )
    if sentences.separated:
        written = written.cut(totals)
    return StoryBatch(
        tokens=torch.from_numpy(written.tokens),
        asked=torch.from_numpy(written.asked),
        answers=torch.from_numpy(story.answers[layout.stories[:, None], layout.asks]),
        support=torch.from_numpy(written.support),
        factors={name: torch.from_numpy(table.take(written.known)) for name, table in story.factors.items()},
    )


@dataclass(frozen=True)
class _Written:
    tokens: Int[np.ndarray, "e t"]
    asked: Int[np.ndarray, "e q"]
    support: Bool[np.ndarray, "e q t"]
    known: Int[np.ndarray, "e t"]
    """Which cell of a factor's table holds what is known at each token."""

    def cut(self, totals: Int[np.ndarray, "e 1"]) -> "_Written":
        """Without separators in the support, and without what is more than LIMIT tokens before the end."""
        support = self.support & ~np.isin(self.tokens, SEPARATORS)[:, None]
        if self.tokens.shape[1] <= LIMIT:
            return replace(self, support=support)
        over = np.maximum(totals - LIMIT, 0)
        columns = over + np.arange(LIMIT)
        tokens, known = np.take_along_axis(self.tokens, columns, 1), np.take_along_axis(self.known, columns, 1)
        return _Written(tokens, self.asked - over, np.take_along_axis(support, columns[:, None], 2), known)


def _mark(story: Story, script: Script, layout: Layout) -> Bool[np.ndarray, "line q"]:
    """Whether each answer follows from a line, lines counted through all sequences."""
    marks = np.zeros((len(layout.stories), len(script.lines) + 1, layout.asks.shape[1]), bool)
    marks[:, script.statements] = story.support[layout.stories[:, None], layout.asks].swapaxes(1, 2)
    return marks.reshape(-1, marks.shape[2])
