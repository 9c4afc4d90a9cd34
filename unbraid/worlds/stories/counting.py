"""How many are in a room: the answer is spread over everybody who came in or went out.

Three statements and a question, four times. A question is about any room that has been named.
"""

import numpy as np
from pydantic import Field

from unbraid.axes import Float
from unbraid.worlds.stories import guesses
from unbraid.worlds.stories.drawing import any_of, at, choose_among, last, one_of
from unbraid.worlds.stories.rooms import visit
from unbraid.worlds.stories.task import GIRLS_AND_BOYS, LINES, LOOKS, PLACES, Tale, Task

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")
ACTS = ("entered", "left")
ASK = len(ACTS)
STATEMENTS = 3
"""Before each question."""


class Counting(Task):
    people: int = Field(default=6, ge=2, le=len(GIRLS_AND_BOYS))
    places: int = Field(default=2, ge=1, le=len(PLACES))
    rounds: int = Field(default=4, ge=1, le=16)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return {"person": GIRLS_AND_BOYS[: self.people], "place": PLACES[: self.places]}

    @property
    def forms(self) -> tuple[str, ...]:
        return (*(f"{{person}} *{act} the {{place}} ." for act in ACTS), "how many are in the {place} ?")

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return (*[tuple(range(ASK))] * STATEMENTS, (ASK,)) * self.rounds

    @property
    def answers(self) -> tuple[str, ...]:
        return NUMBERS[: self.people + 1]

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        people, places = self.names["person"], self.names["place"]
        return {
            "line": LINES,
            "person": people,
            "act": ACTS,
            "place": places,
            **dict.fromkeys(self._places, (*places, "outside")),
            **dict.fromkeys(self.askable, self.answers),
            "answer": self.answers,
        }

    @property
    def _places(self) -> list[str]:
        return [f"place of {person}" for person in self.names["person"]]

    @property
    def askable(self) -> list[str]:
        return [f"count in {place}" for place in self.names["place"]]

    @property
    def dice(self) -> int:
        return (3 * STATEMENTS + 1) * self.rounds

    def tell(self, dice: Float[np.ndarray, "b k"]) -> Tale:
        script, count = self.script, STATEMENTS * self.rounds
        visits = visit(dice[:, : 3 * count].reshape(-1, 3, count), self.people, self.places)
        who, where = one_of(visits.who, self.people), one_of(visits.where, self.places)
        known, named = last(who) >= 0, last(where) >= 0
        asked = choose_among(dice[:, 3 * count :], named[:, script.told])
        counts = np.where(named, visits.counts(where), -1)
        answers = at(counts[:, script.told], asked)
        whereabouts = np.where((visits.inside < 0) & known, self.places, visits.inside)
        facts = at(
            last(who[..., None] & where[:, :, None])[:, script.told],
            np.broadcast_to(asked[..., None], (*asked.shape, self.people)),
        )
        return Tale(
            sentences=script.number(
                script.sentences.number(visits.what, visits.who, visits.where), script.sentences.number(ASK, asked)
            ),
            answers=answers,
            support=any_of(facts, count),
            factors={
                "line": script.kinds(len(dice)),
                "person": script.mentioned(visits.who),
                "act": script.mentioned(visits.what, since=2),
                "place": script.mentioned(visits.where, asked, since=3),
                **dict(zip(self._places, script.tracked(whereabouts, since=3), strict=True)),
                **dict(zip(self.askable, script.tracked(counts, since=3), strict=True)),
                "answer": script.mentioned(asked=answers),
            },
        )

    def guess(self, tale: Tale) -> dict[str, Float[np.ndarray, "b q c"]]:
        script, classes = self.script, len(self.answers)
        counts = np.stack([guesses.asked(script, tale, name) for name in self.askable])
        entries = (guesses.stated(script, tale, "act") == 0)[..., None] & one_of(
            guesses.stated(script, tale, "place"), self.places
        )
        entered = at(np.cumsum(entries, axis=1)[:, script.told - 1], guesses.asked(script, tale, "place"))
        return {
            "everybody inside": guesses.sure(np.maximum(counts, 0).sum(0), classes),
            f"{LOOKS}leaving overlooked": guesses.sure(np.minimum(entered, self.people), classes),
        }
