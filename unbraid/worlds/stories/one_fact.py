"""Where somebody is, by the last statement about them: bAbI's task 1, by the rules of its public generator.

Two statements and a question, five times. A statement sends somebody to a place that they are not in, any such pair as
likely; a question is about any of those whose place is known. The public generator starts people in places of which the
reader knows nothing; in the published data a first move may lead there too, and here people start nowhere.
"""

import numpy as np
from pydantic import Field

from unbraid.axes import Float
from unbraid.worlds.stories.story import Story, choose, choose_among, choose_other, choose_weighted
from unbraid.worlds.stories.task import (
    GIRLS_AND_BOYS,
    LINES,
    LOOKS,
    MOVES,
    PLACES,
    Task,
    any_place_of_the_asked,
    guess_places,
)

STATEMENTS = 2
"""Before each question."""
ASK = len(MOVES)


class OneFact(Task):
    people: int = Field(default=4, ge=1, le=len(GIRLS_AND_BOYS))
    """How many people there are; more have more places to be remembered."""
    places: int = Field(default=6, ge=2, le=len(PLACES))
    """How many places there are, which are the answers; more make guessing harder."""
    rounds: int = Field(default=5, ge=1, le=25)
    """Questions in a story, each after two statements; more make it longer."""

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
    def factors(self) -> dict[str, tuple[str, ...]]:
        people, places = self.names["person"], self.names["place"]
        mentioned = {"line": LINES, "person": people, "place": places}
        return {**mentioned, **dict.fromkeys(self.askable, places), "answer": places}

    @property
    def askable(self) -> list[str]:
        return self.places_of_people

    @property
    def n_uniforms(self) -> int:
        return (3 * STATEMENTS + 1) * self.rounds

    def generate(self, story: Story) -> None:
        count = STATEMENTS * self.rounds
        for_person, for_verb, for_place, for_question = np.split(story.uniforms, [count, 2 * count, 3 * count])
        place_of, last_move = story.track(self.askable), story.table(self.people)
        for n in range(count):
            # Somebody not yet heard of has one more place to go to, and is so much likelier to move.
            ways_to_go = np.where(place_of.values < 0, self.places, self.places - 1)
            person = choose_weighted(for_person[n], ways_to_go)
            place = choose_other(for_place[n], place_of[person], self.places)
            place_of[person] = place
            last_move[person] = story.state(choose(for_verb[n], len(MOVES)), {"person": person}, {"place": place})
            if (n + 1) % STATEMENTS == 0:
                person = choose_among(for_question[n // STATEMENTS], place_of.values >= 0)
                story.ask(ASK, {"person": person}, answer=place_of[person], support=last_move[person])

    def guess(self, story: Story) -> dict[str, Float[np.ndarray, "b q c"]]:
        return {
            **guess_places(story, self.places),
            f"{LOOKS}any place of theirs": any_place_of_the_asked(story, self.places),
        }
