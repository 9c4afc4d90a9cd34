"""Questions about stories in the manner of bAbI, what each answer follows from, and the factors behind it.

A split is an endless list of examples: stories (layout "together") or questions (layout "single", those of a story one
after the other). Batch number `position` is its part from position · size on.
"""

from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator

from unbraid.axes import Float, Int, Tensor
from unbraid.config import Config, check, suggest
from unbraid.errors import UserError
from unbraid.randomness import stream
from unbraid.worlds.stories.batch import LIMIT, Layout, MinimalPairs, StoryBatch, single, together, write
from unbraid.worlds.stories.coreference import Coreference
from unbraid.worlds.stories.counting import Counting, Ratio
from unbraid.worlds.stories.language import Script
from unbraid.worlds.stories.one_fact import OneFact
from unbraid.worlds.stories.path import Path
from unbraid.worlds.stories.story import Story
from unbraid.worlds.stories.task import Task
from unbraid.worlds.stories.two_facts import TwoFacts

TASKS: dict[str, type[Task]] = {
    "one_fact": OneFact,
    "two_facts": TwoFacts,
    "counting": Counting,
    "ratio": Ratio,
    "coreference": Coreference,
    "path": Path,
}
"""Every task that a story can set, by its name in a configuration."""
BLOCK = 128
"""Stories of a split that are made from one random stream."""
SIZES = ("people", "places", "things", "rounds")


class Stories(Config):
    """Small stories with questions in the manner of bAbI: a world to train transformers on.

    It knows what a language model's text does not tell: which statements an answer follows from, and the value of every
    factor (who is where, who holds what) at every token. So attention heads and dictionaries can be checked against it.

    Attributes
    ----------
    vocabulary : tuple of str
        The words by token id; 0 is padding.
    answers : tuple of str
        The possible answers by class number.
    factors : dict of str to tuple of str
        The factors known at every token, and the names of their values.
    length : int
        Tokens of the longest possible sequence.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Stories(task="one_fact", rounds=1, seed=3)
    >>> batch = world.batch(position=0, size=1)
    >>> " ".join(world.words(batch.tokens[0]))
    'john went back to the garden . daniel journeyed to the bathroom . where is john ?'
    >>> world.answers[batch.answers[0, 0]]
    'garden'
    >>> " ".join(world.words(batch.tokens[0][batch.support[0, 0]]))  # what the answer follows from
    'john went back to the garden .'
    """

    kind: Literal["stories"] = "stories"
    """The world's name in a configuration."""
    task: Literal["one_fact", "two_facts", "counting", "ratio", "coreference", "path"] = "one_fact"
    """What the stories are about and what is asked; docs/stories.md shows an example of each."""
    layout: Literal["together", "single"] = "together"
    """together: a sequence is a story with all its questions. single: the statements so far and one question."""
    examples: int | None = Field(default=None, ge=1, le=1 << 20)
    """Number of training sequences, reshuffled each epoch; fewer are easier to memorise. None: every batch is new."""
    people: int | None = None
    """Number of people; more make stories harder to follow. None: the task's default, as for all sizes below."""
    places: int | None = None
    """Number of places; more make guessing harder."""
    things: int | None = None
    """Number of things that can be carried; more make stories harder to follow."""
    rounds: int | None = None
    """Number of questions in a story; more make it longer."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Another seed gives other stories."""

    @field_validator("task", mode="before")
    @classmethod
    def check_task(cls, task: Any) -> Any:
        if not isinstance(task, str) or task not in TASKS:
            raise ValueError(suggest(str(task), TASKS))
        return task

    @model_validator(mode="after")
    def check_sizes(self) -> Self:
        try:
            self.rules  # noqa: B018 (a size that cannot be is refused here)
        except UserError as problem:
            raise ValueError(str(problem)) from None  # whoever reads the configuration says which one it is
        return self

    @cached_property
    def rules(self) -> Task:
        """The task at these sizes; those not given are its own."""
        given = {name: getattr(self, name) for name in SIZES if getattr(self, name) is not None}
        return check(TASKS[self.task], given, f"stories of the task {self.task}")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The words by their number; 0 is padding."""
        return self._script.sentences.vocabulary

    @property
    def answers(self) -> tuple[str, ...]:
        return self.rules.answers

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """What is known at every token, and what the values mean."""
        return self.rules.factors

    @property
    def length(self) -> int:
        """Tokens of the longest sequence there can be."""
        return self._script.longest_story if self.layout == "together" else min(self._script.longest_question, LIMIT)

    def words(self, tokens: Int[Tensor, "t"]) -> list[str]:
        """The word of each token."""
        vocabulary = self.vocabulary
        return [vocabulary[token] for token in tokens.tolist()]

    def batch(self, position: int, size: int, split: str = "train") -> StoryBatch:
        """Draw batch number `position` of a split: b = `size` sequences of t tokens with q questions each.

        Parameters
        ----------
        position : int
            Which batch, from 0; the same position always gives the same batch.
        size : int
            Sequences in the batch. With `examples`, the last training batch of an epoch may hold fewer.
        split : str, default "train"
            Any name; each split has its own random stream.

        Returns
        -------
        StoryBatch
            Token ids `tokens` (b, t) and `mask` (b, t), false at padding; `asked` (b, q), the positions of the question
            marks, and `answers` (b, q); `support` (b, q, t), true on the statements that an answer follows from; and
            `factors`, a dict of integer tensors (b, t), -1 where a factor has no value.
        """
        if position < 0 or size < 1:
            raise UserError(
                f"batch {position} of size {size} was asked for; accepted: a position from 0, a size from 1"
            )
        numbers = self._numbers(position, size, split)
        if self.layout == "together":
            return write(self._generate(numbers, split), self._script, together(self._script, len(numbers)))
        stories, questions = np.divmod(numbers, len(self._script.questions))
        stories, rows = np.unique(stories, return_inverse=True)
        return write(self._generate(stories, split), self._script, single(self._script, rows, questions))

    def minimal_pairs(self, stories: int, split: str) -> MinimalPairs:
        """Pairs of sequences that differ in one word: what the world says would follow from another word.

        The second of a pair is made of the same random numbers as the first, all but one. Of all these, those are kept
        that differ in exactly one word, and in some factor.

        Parameters
        ----------
        stories : int
            Stories of the split, from the first on, that others are held against. A story is in many pairs or in none.
        split : str
            Any name, as for `batch`.

        Returns
        -------
        MinimalPairs
            `base` and `other`, each a `StoryBatch` of the same n sequences. Answers and factors are those of either.

        Examples
        --------
        >>> import unbraid as ub
        >>> world = ub.Stories(task="one_fact", rounds=1, seed=3)
        >>> pairs = world.minimal_pairs(1, "train").select(slice(1))
        >>> " ".join(world.words(pairs.base.tokens[0, :17]))
        'john went back to the garden . daniel journeyed to the bathroom . where is john ?'
        >>> " ".join(world.words(pairs.other.tokens[0, :17]))
        'john went back to the hallway . daniel journeyed to the bathroom . where is john ?'
        >>> world.answers[pairs.other.answers[0, 0]]
        'hallway'
        """
        numbers, draws = np.arange(stories), self.rules.n_uniforms
        uniforms, fresh = self._draw(numbers, split), self._draw(numbers, f"{split}, other words")
        other = np.repeat(uniforms[:, None], draws, 1)  # a story more for each draw, which alone is another
        other[:, np.arange(draws), np.arange(draws)] = fresh
        made = self.rules.stories(np.concatenate([uniforms, other.reshape(-1, draws)]))
        batch = write(made, self._script, self._all_sequences(len(made.answers)))
        sequences = torch.arange(len(batch.tokens)).view(len(made.answers), -1)  # one a story, or one a question
        base, changed = sequences[:stories].repeat_interleave(draws, 0).flatten(), sequences[stories:].flatten()
        pairs = MinimalPairs(batch.select(base), batch.select(changed))
        one_word = (pairs.base.tokens != pairs.other.tokens).sum(1) == 1
        some_factor = torch.stack([pairs.differs(name) for name in self.factors]).any(0).any(1)
        return pairs.select((one_word & some_factor).nonzero()[:, 0])

    def shortcuts(self, samples: int = 20_000) -> dict[str, float]:
        """The accuracy of rules of thumb on this many stories (see docs/stories.md).

        `chance` is the best rule that does not look at the question. Rules that do are named `asked: …`.
        `without the question` is what nothing that ignores the question can exceed.
        """
        return self.rules.shortcuts(self._generate(np.arange(samples), "shortcuts"))

    def _all_sequences(self, stories: int) -> Layout:
        """A sequence for each story, or for each question of each."""
        if self.layout == "together":
            return together(self._script, stories)
        each = np.divmod(np.arange(stories * len(self._script.questions)), len(self._script.questions))
        return single(self._script, *each)

    @cached_property
    def _script(self) -> Script:
        script = self.rules.script
        return script if self.layout == "together" else script.separated()

    def _generate(self, stories: Int[np.ndarray, "b"], split: str) -> Story:
        return self.rules.stories(self._uniforms(stories, split))

    def _numbers(self, position: int, size: int, split: str) -> Int[np.ndarray, "e"]:
        """Which examples of the split a batch holds."""
        if self.examples is None or split != "train":
            return np.arange(position * size, (position + 1) * size)
        epoch, index = divmod(position, -(-self.examples // size))
        order = stream(self.seed, "order of stories", self.task, epoch).permutation(self.examples)
        return order[index * size : (index + 1) * size]

    def _uniforms(self, stories: Int[np.ndarray, "b"], split: str) -> Float[np.ndarray, "b k"]:
        if self.examples is not None and split == "train":
            return self._fixed_uniforms[stories]
        return self._draw(stories, split)

    @cached_property
    def _fixed_uniforms(self) -> Float[np.ndarray, "b k"]:
        """The random numbers of all stories that the fixed examples come from."""
        questions = 1 if self.layout == "together" else len(self._script.questions)
        return self._draw(np.arange(-(-(self.examples or 0) // questions)), "train")

    def _draw(self, stories: Int[np.ndarray, "b"], split: str) -> Float[np.ndarray, "b k"]:
        blocks, which = np.unique(stories // BLOCK, return_inverse=True)
        drawn = np.stack([self._block(split, int(block)) for block in blocks])
        return drawn[which, stories % BLOCK]

    def _block(self, split: str, number: int) -> Float[np.ndarray, "b k"]:
        rng = stream(self.seed, "stories", self.task, split, number)
        return rng.random((BLOCK, self.rules.n_uniforms), dtype=np.float32)
