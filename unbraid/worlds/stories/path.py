"""How to go from one place to another, two steps away: two relations composed, in the manner of bAbI's task 19.

The places form chains of three, each place next to the one before; no chain turns back. Every statement gives one step,
from either end; their order is any. A question asks the way from one end of a chain to the other.
"""

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from unbraid.axes import Float, Int
from unbraid.worlds.stories.story import Story, Table, choose, shuffle
from unbraid.worlds.stories.task import LINES, LOOKS, PLACES, Task, certain

DIRECTIONS = ("north", "east", "south", "west")
"""Opposite ones are two apart."""
CHAIN, STEPS = 3, 2
"""Places of a chain, and the steps between them."""
STATE, ASK = range(2)


class Path(Task):
    places: int = Field(default=6, ge=CHAIN, le=len(PLACES))
    """How many places there are, a multiple of three; more make more chains, stated in any order."""
    rounds: int = Field(default=4, ge=1, le=8)
    """Questions in a story, after all statements."""

    @model_validator(mode="after")
    def check_chains(self) -> Self:
        if self.places % CHAIN:
            raise ValueError(f"{self.places} places do not make chains of {CHAIN}; accepted: a multiple of {CHAIN}")
        return self

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        places = PLACES[: self.places]
        return {"first place": places, "direction": DIRECTIONS, "second place": places}

    @property
    def forms(self) -> tuple[str, ...]:
        statement = "the {first place} is {direction} of the {second place} ."
        return (statement, "how do you go from the {first place} to the {second place} ?")

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return ((STATE,),) * self._steps + ((ASK,),) * self.rounds

    @property
    def answers(self) -> tuple[str, ...]:
        turns = [(first, (first + 3 + turn) % 4) for first in range(4) for turn in range(3)]
        return tuple(f"{DIRECTIONS[first]} {DIRECTIONS[second]}" for first, second in turns)

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        places = PLACES[: self.places]
        return {
            "line": LINES,
            "first place": places,
            "direction": DIRECTIONS,
            "second place": places,
            "place between": places,
            "first step": DIRECTIONS,
            "second step": DIRECTIONS,
            "answer": self.answers,
        }

    @property
    def n_uniforms(self) -> int:
        return self.places + 3 * self._steps + 2 * self.rounds

    def generate(self, story: Story) -> None:
        for_places, for_directions, for_order, for_end, for_question = np.split(
            story.uniforms, self.places + self._steps * np.arange(4)
        )
        place, direction = Table(shuffle(for_places)), story.table(self._steps)  # chain c has places 3c … 3c + 2
        for step in range(0, self._steps, STEPS):
            direction[step] = choose(for_directions[step], 4)
            direction[step + 1] = (direction[step] + 3 + choose(for_directions[step + 1], 3)) % 4  # not back
        order, statement_of = shuffle(for_order), story.table(self._steps)
        for n, step in enumerate(order):
            here = CHAIN * (step // STEPS) + step % STEPS
            back = for_end[n] < 0.5
            first, second = place[here + ~back], place[here + back]
            way = (direction[step] + 2 * back) % 4
            statement_of[step] = story.state(
                STATE, {"first place": first}, {"direction": way}, {"second place": second}
            )
        for q in range(self.rounds):
            chain, back = choose(for_question[q], self.places // CHAIN), choose(for_question[self.rounds + q], 2)
            start, between, end = (place[CHAIN * chain + stop] for stop in (2 * back, 1, 2 - 2 * back))
            forth, on = direction[STEPS * chain], direction[STEPS * chain + 1]
            first, second = np.where(back, (on + 2) % 4, forth), np.where(back, (forth + 2) % 4, on)
            way = {"place between": between, "first step": first, "second step": second}
            support = np.stack([statement_of[STEPS * chain], statement_of[STEPS * chain + 1]])
            answer = _number(first, second)
            story.ask(ASK, {"first place": start}, {"second place": end, **way}, answer=answer, support=support)

    def guess(self, story: Story) -> dict[str, Float[np.ndarray, "b q c"]]:
        """Directions as they were stated, of whatever place: of the last two statements, or of those about the way."""
        directions = story.stated("direction")
        latest = np.broadcast_to(directions[:, None, -2:], (*story.answers.shape, 2))
        about = np.where(story.support, directions[:, None], -1)
        order = np.argsort(~story.support, axis=2, kind="stable")[..., :2]
        in_order = np.take_along_axis(about, order, 2)
        return {"last statements": self._as_way(latest), f"{LOOKS}directions as told": self._as_way(in_order)}

    def possible(self, story: Story) -> Int[np.ndarray, "b q n"]:
        """Every way there is: of two statements that share a place, by one to that place, by the other on from it."""
        first_place, direction, second_place = (
            story.stated(name) for name in ("first place", "direction", "second place")
        )
        meets, leaves = (
            (ends[:, :, None] == first_place[:, None]) | (ends[:, :, None] == second_place[:, None])
            for ends in (first_place, second_place)
        )
        first = (direction[:, :, None] + 2 * ~meets) % 4
        second = (direction[:, None] + 2 * meets.swapaxes(1, 2)) % 4
        joined = (meets | leaves) & ~np.eye(self._steps, dtype=bool)
        ways = np.where(joined, _number(first, second), -1).reshape(len(direction), 1, -1)
        return np.broadcast_to(ways, (*story.answers.shape, ways.shape[2]))

    def _as_way(self, ways: Int[np.ndarray, "b q 2"]) -> Float[np.ndarray, "b q c"]:
        """The answer that these two steps make; none where they lead back."""
        first, second = ways[..., 0], ways[..., 1]
        back = (second - first) % 4 == 2
        return certain(np.where(back, -1, _number(first, second)), len(self.answers))

    @property
    def _steps(self) -> int:
        return self.places // CHAIN * STEPS


def _number(first: Int[np.ndarray, "..."], second: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """Of the answer with these two steps, which do not lead back."""
    return first * 3 + (second - first - 3) % 4
