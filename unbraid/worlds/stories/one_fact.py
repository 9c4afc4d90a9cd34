"""Where somebody is, by the last statement about them: bAbI's task 1, by the rules of its public generator.

Two statements and a question, five times. A statement sends somebody to a place that they are not in, any such pair as
likely; a question is about any of those whose place is known. The public generator starts people in places of which the
reader is not told; in the published data a first move may lead there too, and here people start nowhere.
"""

import numpy as np
from pydantic import Field

from unbraid.axes import Float, Int
from unbraid.worlds.stories import guesses
from unbraid.worlds.stories.drawing import SMALL, at, choose, choose_among, last, one_of, walk
from unbraid.worlds.stories.task import GIRLS_AND_BOYS, LINES, LOOKS, MOVES, PLACES, Tale, Task

STATEMENTS = 2
"""Before each question."""
ASK = len(MOVES)


class OneFact(Task):
    people: int = Field(default=4, ge=1, le=len(GIRLS_AND_BOYS))
    places: int = Field(default=6, ge=2, le=len(PLACES))
    rounds: int = Field(default=5, ge=1, le=25)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return {"person": GIRLS_AND_BOYS[: self.people], "place": PLACES[: self.places]}

    @property
    def forms(self) -> tuple[str, ...]:
        return (*MOVES, "where is {person} ?")

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return (*[tuple(range(ASK))] * STATEMENTS, (ASK,)) * self.rounds

    @property
    def answers(self) -> tuple[str, ...]:
        return self.names["place"]

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        people, places = self.names["person"], self.names["place"]
        mentioned = {"line": LINES, "person": people, "place": places}
        return {**mentioned, **dict.fromkeys(self.askable, places), "answer": places}

    @property
    def askable(self) -> list[str]:
        return [f"place of {person}" for person in self.names["person"]]

    @property
    def dice(self) -> int:
        return (3 * STATEMENTS + 1) * self.rounds

    def tell(self, dice: Float[np.ndarray, "b k"]) -> Tale:
        script, count = self.script, STATEMENTS * self.rounds
        who, how, where, whom = np.split(dice, [count, 2 * count, 3 * count], axis=1)
        movers = self._choose_movers(who)
        states = walk(movers, where, self.people, self.places)
        goals = at(states[:, 1:], movers)
        asked = choose_among(whom, states[:, script.told] >= 0)
        answers = at(states[:, script.told], asked)
        latest = at(last(one_of(movers, self.people))[:, script.told], asked)
        verbs = choose(how, len(MOVES))
        return Tale(
            sentences=script.number(script.sentences.number(verbs, movers, goals), script.sentences.number(ASK, asked)),
            answers=answers,
            support=one_of(latest, count),
            factors={
                "line": script.kinds(len(dice)),
                "person": script.mentioned(movers, asked),
                "place": script.mentioned(goals, since=2),
                **dict(zip(self.askable, script.tracked(states), strict=True)),
                "answer": script.mentioned(asked=answers),
            },
        )

    def _choose_movers(self, dice: Float[np.ndarray, "b n"]) -> Int[np.ndarray, "b n"]:
        """Somebody not yet heard of has one more place to go to, and is so much likelier to move."""
        movers, heard_of = np.empty(dice.shape, SMALL), np.zeros((len(dice), self.people), SMALL)
        for n in range(dice.shape[1]):
            upto = np.cumsum(self.places - heard_of, axis=1)
            movers[:, n] = (upto > (dice[:, n] * upto[:, -1]).astype(int)[:, None]).argmax(1)
            np.put_along_axis(heard_of, movers[:, [n]], 1, 1)
        return movers

    def guess(self, tale: Tale) -> dict[str, Float[np.ndarray, "b q c"]]:
        given = self.script, tale, self.places
        return {
            **guesses.of_places(*given),
            f"{LOOKS}any place of theirs": guesses.any_place_of_the_asked(*given),
        }
