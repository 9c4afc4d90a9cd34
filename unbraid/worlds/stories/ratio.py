"""What the ratio of boys to girls in the room is: two counts at once, each spread over many statements.

Three statements and the question, four times. Ratios are reduced, so that 2 boys and 2 girls are 1:1.
"""

from functools import cached_property
from math import gcd

import numpy as np
from pydantic import Field

from unbraid.axes import Float, Int
from unbraid.worlds.stories import guesses
from unbraid.worlds.stories.drawing import any_of, last, one_of
from unbraid.worlds.stories.rooms import visit
from unbraid.worlds.stories.task import GIRLS_AND_BOYS, LINES, Tale, Task

ACTS = ("entered", "left")
ASK = len(ACTS)
STATEMENTS = 3
"""Before each question."""


class Ratio(Task):
    people: int = Field(default=6, ge=2, le=len(GIRLS_AND_BOYS))
    rounds: int = Field(default=4, ge=1, le=16)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return {"person": GIRLS_AND_BOYS[: self.people]}

    @property
    def forms(self) -> tuple[str, ...]:
        asks = "*what is the ratio of boys to girls in the room ?"
        return (*(f"{{person}} *{act} the room ." for act in ACTS), asks)

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return (*[tuple(range(ASK))] * STATEMENTS, (ASK,)) * self.rounds

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_reduced(boys, girls) for boys, girls in self._mixtures))

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        counts = tuple(map(str, range(self.people)))
        return {
            "line": LINES,
            "person": self.names["person"],
            "act": ACTS,
            **dict.fromkeys(self._places, ("inside", "outside")),
            "boys": counts[: self.people // 2 + 1],
            "girls": counts[: (self.people + 1) // 2 + 1],
            "ratio": self.answers,
            "answer": self.answers,
        }

    @property
    def dice(self) -> int:
        return 2 * STATEMENTS * self.rounds

    def tell(self, dice: Float[np.ndarray, "b k"]) -> Tale:
        script, count = self.script, STATEMENTS * self.rounds
        visits = visit(dice.reshape(-1, 2, count)[:, [0, 1, 1]], self.people, rooms=1)
        latest = last(one_of(visits.who, self.people))
        whereabouts = np.where((visits.inside < 0) & (latest >= 0), 1, visits.inside)
        girls, boys = ((visits.inside[:, :, first::2] == 0).sum(2) for first in range(2))
        ratios = self._classes[boys, girls]
        answers = ratios[:, script.told]
        counts = np.stack([boys, girls, ratios], axis=2)
        asked = np.zeros_like(answers)
        return Tale(
            sentences=script.number(
                script.sentences.number(visits.what, visits.who), script.sentences.number(ASK + asked)
            ),
            answers=answers,
            support=any_of(latest[:, script.told], count),
            factors={
                "line": script.kinds(len(dice)),
                "person": script.mentioned(visits.who),
                "act": script.mentioned(visits.what, since=2),
                **dict(zip(self._places, script.tracked(whereabouts), strict=True)),
                **dict(zip(("boys", "girls", "ratio"), script.tracked(counts), strict=True)),
                "answer": script.mentioned(asked=answers),
            },
        )

    def guess(self, tale: Tale) -> dict[str, Float[np.ndarray, "b q c"]]:
        heard_of = np.stack([guesses.asked(self.script, tale, name) >= 0 for name in self._places])
        girls, boys = heard_of[::2].sum(0), heard_of[1::2].sum(0)
        return {"leaving overlooked": guesses.sure(self._classes[boys, girls], len(self.answers))}

    @property
    def _places(self) -> list[str]:
        return [f"place of {person}" for person in self.names["person"]]

    @property
    def _mixtures(self) -> list[tuple[int, int]]:
        return [(boys, girls) for boys in range(self.people // 2 + 1) for girls in range((self.people + 1) // 2 + 1)]

    @cached_property
    def _classes(self) -> Int[np.ndarray, "boys girls"]:
        """The answer for each number of boys and girls."""
        numbers = [self.answers.index(_reduced(boys, girls)) for boys, girls in self._mixtures]
        return np.array(numbers).reshape(self.people // 2 + 1, -1)


def _reduced(boys: int, girls: int) -> str:
    common = gcd(boys, girls) or 1
    return f"{boys // common}:{girls // common}"
