"""How to go from one place to another, two steps away: two relations composed, in the manner of bAbI's task 19.

The places form chains of three, each place next to the one before; no chain turns back. Every statement tells one step,
from either end; their order is any. A question asks the way from one end of a chain to the other.
"""

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories import guesses
from unbraid.worlds.stories.drawing import choose, shuffle
from unbraid.worlds.stories.task import LINES, LOOKS, PLACES, Tale, Task

DIRECTIONS = ("north", "east", "south", "west")
"""Opposite ones are two apart."""
CHAIN = 3
TELL, ASK = range(2)


class Path(Task):
    places: int = Field(default=6, ge=CHAIN, le=len(PLACES))
    rounds: int = Field(default=4, ge=1, le=8)
    """How many questions there are."""

    @model_validator(mode="after")
    def make_whole_chains(self) -> Self:
        if self.places % CHAIN:
            raise ValueError(f"{self.places} places do not make chains of {CHAIN}; accepted: a multiple of {CHAIN}")
        return self

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return {"place": PLACES[: self.places], "direction": DIRECTIONS}

    @property
    def forms(self) -> tuple[str, ...]:
        return ("the {place} is {direction} of the {place} .", "how do you go from the {place} to the {place} ?")

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return ((TELL,),) * self._steps + ((ASK,),) * self.rounds

    @property
    def answers(self) -> tuple[str, ...]:
        turns = [(first, (first + 3 + turn) % 4) for first in range(4) for turn in range(3)]
        return tuple(f"{DIRECTIONS[first]} {DIRECTIONS[second]}" for first, second in turns)

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        places = self.names["place"]
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
    def dice(self) -> int:
        return self.places + 3 * self._steps + 2 * self.rounds

    def tell(self, dice: Float[np.ndarray, "b k"]) -> Tale:
        script, ends = self.script, self.places + self._steps * np.arange(4)
        where, ways, orders, turned, which = np.split(dice, ends, axis=1)
        chains = shuffle(where).reshape(len(dice), -1, CHAIN)
        first, turn = choose(ways[:, ::2], 4), choose(ways[:, 1::2], 3)
        steps = np.stack([first, (first + 3 + turn) % 4], axis=2)
        order = shuffle(orders)
        chain, back = choose(which[:, : self.rounds], chains.shape[1]), choose(which[:, self.rounds :], 2)
        way = np.take_along_axis(steps, chain[..., None], 1)
        way = np.where(back[..., None], (way[..., ::-1] + 2) % 4, way)
        stops = np.take_along_axis(chains, chain[..., None], 1)
        stops = np.where(back[..., None], stops[..., ::-1], stops)
        answers = _number(way[..., 0], way[..., 1])
        told, direction, base = self._state(chains, steps, order, turned < 0.5)
        numbers = script.sentences.number
        return Tale(
            sentences=script.number(numbers(TELL, told, direction, base), numbers(ASK, stops[..., 0], stops[..., 2])),
            answers=answers,
            support=order[:, None] // 2 == chain[..., None],
            factors={
                "line": script.kinds(len(dice)),
                "first place": script.mentioned(told, stops[..., 0]),
                "direction": script.mentioned(direction, since=2),
                "second place": script.mentioned(base, stops[..., 2], since=3, asked_since=2),
                "place between": script.mentioned(asked=stops[..., 1], asked_since=2),
                "first step": script.mentioned(asked=way[..., 0], asked_since=2),
                "second step": script.mentioned(asked=way[..., 1], asked_since=2),
                "answer": script.mentioned(asked=answers, asked_since=2),
            },
        )

    def _state(
        self,
        chains: Int[np.ndarray, "b chain 3"],
        steps: Int[np.ndarray, "b chain 2"],
        order: Int[np.ndarray, "b n"],
        turned: Bool[np.ndarray, "b n"],
    ) -> tuple[Int[np.ndarray, "b n"], Int[np.ndarray, "b n"], Int[np.ndarray, "b n"]]:
        """Of each statement what lies in which direction of what."""
        begin, end, way = (part.reshape(order.shape) for part in (chains[:, :, :-1], chains[:, :, 1:], steps))
        begin, end, way = (np.take_along_axis(part, order, 1) for part in (begin, end, way))
        return np.where(turned, begin, end), (way + 2 * turned) % 4, np.where(turned, end, begin)

    def guess(self, tale: Tale) -> dict[str, Float[np.ndarray, "b q c"]]:
        """Directions as they were told, whatever of whatever: of the last two statements, or of those about the way."""
        directions = guesses.stated(self.script, tale, "direction")
        latest = np.broadcast_to(directions[:, None, -2:], (*tale.answers.shape, 2))
        about = np.where(tale.support, directions[:, None], -1)
        order = np.argsort(~tale.support, axis=2, kind="stable")[..., :2]
        told = np.take_along_axis(about, order, 2)
        return {"last statements": self._as_way(latest), f"{LOOKS}directions as told": self._as_way(told)}

    def possible(self, tale: Tale) -> Int[np.ndarray, "b q n"]:
        """Every way there is: of two statements that share a place, by one to that place, by the other on from it."""
        told, direction, base = (
            guesses.stated(self.script, tale, name) for name in ("first place", "direction", "second place")
        )
        meets, leaves = (
            (ends[:, :, None] == told[:, None]) | (ends[:, :, None] == base[:, None]) for ends in (told, base)
        )
        first = (direction[:, :, None] + 2 * ~meets) % 4
        second = (direction[:, None] + 2 * meets.swapaxes(1, 2)) % 4
        joined = (meets | leaves) & ~np.eye(self._steps, dtype=bool)
        ways = np.where(joined, _number(first, second), -1).reshape(len(told), 1, -1)
        return np.broadcast_to(ways, (*tale.answers.shape, ways.shape[2]))

    def _as_way(self, ways: Int[np.ndarray, "b q 2"]) -> Float[np.ndarray, "b q c"]:
        """The answer that these two steps make; none where they lead back."""
        first, second = ways[..., 0], ways[..., 1]
        back = (second - first) % 4 == 2
        return guesses.sure(np.where(back, -1, _number(first, second)), len(self.answers))

    @property
    def _steps(self) -> int:
        return self.places // CHAIN * (CHAIN - 1)


def _number(first: Int[np.ndarray, "..."], second: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """Of the answer with these two steps, which do not lead back."""
    return first * 3 + (second - first - 3) % 4
