"""Stories become tokens: all lines in one sequence, or the statements so far and one question.

Each sequence is cut at the left to its last LIMIT tokens when it holds one question, as in seed 000.
"""

from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Bool, Int
from unbraid.worlds.stories.batch import StoryBatch
from unbraid.worlds.stories.script import Script
from unbraid.worlds.stories.sentences import SEP, SPECIAL, SSEP
from unbraid.worlds.stories.task import Tale

LIMIT = 180
SEPARATORS = (SPECIAL.index(SEP), SPECIAL.index(SSEP))


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


def tell(tale: Tale, script: Script, layout: Layout) -> StoryBatch:
    """`script` says where words stand: with separators for sequences of one question."""
    sentences, count = script.sentences, len(script.lines) + 1
    numbers = tale.sentences[layout.stories]
    lengths = np.where(layout.keeps, sentences.lengths[numbers], 0)
    ends = np.cumsum(lengths, axis=1)
    totals = ends[:, -1:]
    width = int(totals.max())
    lines = _spread(np.concatenate([lengths, width - totals], axis=1))
    # Where each token's word stands among those of all sentences; behind them, for padding, is nothing but padding.
    begins = np.concatenate([sentences.starts[numbers] - ends + lengths, len(sentences.words) - totals], axis=1)
    cells = begins.take(lines)
    cells += np.arange(width)
    told = _Told(
        tokens=np.concatenate([sentences.words, np.zeros(width, int)]).take(cells),
        asked=np.take_along_axis(ends, script.questions[layout.asks], 1) - 1,
        support=_mark(tale, script, layout).take(lines, axis=0).swapaxes(1, 2),
        moments=(lines + count * (layout.stories - np.arange(len(lines)))[:, None]) * sentences.depth
        + np.concatenate([sentences.read, np.zeros(width, int)]).take(cells),
    )
    return _batch(told.cut(totals) if sentences.separated else told, tale, layout)


@dataclass(frozen=True)
class _Told:
    tokens: Int[np.ndarray, "e t"]
    asked: Int[np.ndarray, "e q"]
    support: Bool[np.ndarray, "e q t"]
    moments: Int[np.ndarray, "e t"]
    """Where among all moments of all lines of all stories each token stands."""

    def cut(self, totals: Int[np.ndarray, "e 1"]) -> "_Told":
        """Without separators in the support, and without what is more than LIMIT tokens before the end."""
        support = self.support & ~np.isin(self.tokens, SEPARATORS)[:, None]
        if self.tokens.shape[1] <= LIMIT:
            return _Told(self.tokens, self.asked, support, self.moments)
        over = np.maximum(totals - LIMIT, 0)
        kept = over + np.arange(LIMIT)
        tokens, moments = np.take_along_axis(self.tokens, kept, 1), np.take_along_axis(self.moments, kept, 1)
        return _Told(tokens, self.asked - over, np.take_along_axis(support, kept[:, None], 2), moments)


def _spread(counts: Int[np.ndarray, "e line+1"]) -> Int[np.ndarray, "e t"]:
    """The line on which each token stands, counted through all sequences; the last of each is padding."""
    return np.repeat(np.arange(counts.size), counts.ravel()).reshape(len(counts), -1)


def _mark(tale: Tale, script: Script, layout: Layout) -> Bool[np.ndarray, "line q"]:
    """Whether each answer follows from a line, lines counted through all sequences."""
    marks = np.zeros((len(layout.stories), len(script.lines) + 1, layout.asks.shape[1]), bool)
    marks[:, script.statements] = tale.support[layout.stories[:, None], layout.asks].swapaxes(1, 2)
    return marks.reshape(-1, marks.shape[2])


def _batch(told: _Told, tale: Tale, layout: Layout) -> StoryBatch:
    return StoryBatch(
        tokens=torch.from_numpy(told.tokens),
        asked=torch.from_numpy(told.asked),
        answers=torch.from_numpy(tale.answers[layout.stories[:, None], layout.asks].astype(int)),
        support=torch.from_numpy(told.support),
        factors={name: torch.from_numpy(table.take(told.moments)) for name, table in tale.factors.items()},
    )
