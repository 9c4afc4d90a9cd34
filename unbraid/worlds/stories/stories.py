"""Questions about stories in the manner of bAbI, what each answer follows from, and the factors behind it (seed 000).

A split is an endless list of examples: stories (layout "together") or questions (layout "single", those of a story one
after the other). Batch number `position` is its part from position · size on. With `examples` there are only so many to
train on, the first ones, in another order each epoch; the last batch of an epoch may be short.
"""

from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from unbraid.axes import Float, Int, Tensor
from unbraid.config import Record, check, nearest
from unbraid.errors import Refusal
from unbraid.randomness import stream
from unbraid.worlds.stories.batch import StoryBatch
from unbraid.worlds.stories.script import Script
from unbraid.worlds.stories.shortcuts import accuracies
from unbraid.worlds.stories.task import Tale, Task
from unbraid.worlds.stories.tasks import TASKS
from unbraid.worlds.stories.telling import LIMIT, single, tell, together

BLOCK = 128
"""So many stories of a split are made from one stream."""
SIZES = ("people", "places", "things", "rounds")


class Stories(Record):
    kind: Literal["stories"] = "stories"
    task: Literal["one_fact", "two_facts", "counting", "ratio", "coreference", "path"] = "one_fact"
    layout: Literal["together", "single"] = "together"
    examples: int | None = Field(default=None, ge=1, le=1 << 20)
    people: int | None = None
    places: int | None = None
    things: int | None = None
    rounds: int | None = None
    seed: int = Field(default=0, ge=0, lt=1 << 63)

    @field_validator("task", mode="before")
    @classmethod
    def name_the_nearest(cls, task: Any) -> Any:
        if not isinstance(task, str) or task not in TASKS:
            raise ValueError(nearest(str(task), TASKS))
        return task

    @model_validator(mode="after")
    def have_sizes_that_can_be(self) -> Self:
        try:
            self.rules  # noqa: B018 (a size that cannot be is refused here)
        except Refusal as problem:
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
        return self._script.together if self.layout == "together" else min(self._script.single, LIMIT)

    def words(self, tokens: Int[Tensor, "t"]) -> list[str]:
        """The word of each token."""
        vocabulary = self.vocabulary
        return [vocabulary[token] for token in tokens.tolist()]

    def batch(self, position: int, size: int, split: str = "train") -> StoryBatch:
        if position < 0 or size < 1:
            raise Refusal(f"batch {position} of size {size} was asked for; accepted: a position from 0, a size from 1")
        numbers = self._numbers(position, size, split)
        if self.layout == "together":
            return tell(self._tell(numbers, split), self._script, together(self._script, len(numbers)))
        stories, questions = np.divmod(numbers, len(self._script.questions))
        stories, rows = np.unique(stories, return_inverse=True)
        return tell(self._tell(stories, split), self._script, single(self._script, rows, questions))

    def shortcuts(self, samples: int = 20_000) -> dict[str, float]:
        """How often rules of thumb that do not look at the question are right, and as `chance` the best of them.

        And, not among those: rules that do look, named `asked: …`, and `without the question`, which nothing that
        does not look at the question can exceed.
        """
        return accuracies(self.rules, self._tell(np.arange(samples), "shortcuts"))

    @cached_property
    def _script(self) -> Script:
        script = self.rules.script
        return script if self.layout == "together" else script.separated()

    def _tell(self, stories: Int[np.ndarray, "b"], split: str) -> Tale:
        return self.rules.tell(self._dice(stories, split))

    def _numbers(self, position: int, size: int, split: str) -> Int[np.ndarray, "e"]:
        """Which examples of the split a batch holds."""
        if self.examples is None or split != "train":
            return np.arange(position * size, (position + 1) * size)
        epoch, place = divmod(position, -(-self.examples // size))
        order = stream(self.seed, "order of stories", self.task, epoch).permutation(self.examples)
        return order[place * size : (place + 1) * size]

    def _dice(self, stories: Int[np.ndarray, "b"], split: str) -> Float[np.ndarray, "b k"]:
        if self.examples is not None and split == "train":
            return self._kept[stories]
        return self._draw(stories, split)

    @cached_property
    def _kept(self) -> Float[np.ndarray, "b k"]:
        """The dice of all stories that the fixed examples come from."""
        questions = 1 if self.layout == "together" else len(self._script.questions)
        return self._draw(np.arange(-(-(self.examples or 0) // questions)), "train")

    def _draw(self, stories: Int[np.ndarray, "b"], split: str) -> Float[np.ndarray, "b k"]:
        blocks, which = np.unique(stories // BLOCK, return_inverse=True)
        drawn = np.stack([self._block(split, int(block)) for block in blocks])
        return drawn[which, stories % BLOCK]

    def _block(self, split: str, number: int) -> Float[np.ndarray, "b k"]:
        rng = stream(self.seed, "stories", self.task, split, number)
        return rng.random((BLOCK, self.rules.dice), dtype=np.float32)
