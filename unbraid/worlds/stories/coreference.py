"""Where somebody is, when statements say "she" or "he" for the last girl or boy that a statement spoke of.

Three statements and a question, four times. The first statement names somebody; the others name somebody or say a
pronoun, for somebody spoken of since the last question. A question is about any of those whose place is known.
"""

import numpy as np
from pydantic import Field

from unbraid.axes import Float
from unbraid.worlds.stories.story import Story, choose, choose_among, choose_other
from unbraid.worlds.stories.task import (
    GIRLS_AND_BOYS,
    LINES,
    LOOKS,
    MOVES,
    PLACES,
    Task,
    any_place_of_the_asked,
    certain,
    guess_places,
    last_occurrence,
    one_hot,
    pick,
)

PRONOUNS = ("she", "he")
SAYING_PRONOUNS = tuple(move.replace("{person}", "then {pronoun}") for move in MOVES)
ASK = len(MOVES) + len(SAYING_PRONOUNS)
STATEMENTS = 3
"""Before each question."""
SHARE = 2 / 3
"""How often a statement that may say a pronoun does."""


class Coreference(Task):
    people: int = Field(default=4, ge=2, le=len(GIRLS_AND_BOYS))
    """How many people there are, every second one a boy; more have more places to be remembered."""
    places: int = Field(default=6, ge=2, le=len(PLACES))
    """How many places there are, which are the answers; more make guessing harder."""
    rounds: int = Field(default=4, ge=1, le=16)
    """Questions in a story, each after three statements; more make it longer."""

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        return {"person": GIRLS_AND_BOYS[: self.people], "place": PLACES[: self.places], "pronoun": PRONOUNS}

    @property
    def forms(self) -> tuple[str, ...]:
        return (*MOVES, *SAYING_PRONOUNS, "where is {person} ?")

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        named, any_of = tuple(range(len(MOVES))), tuple(range(ASK))
        return (named, *[any_of] * (STATEMENTS - 1), (ASK,)) * self.rounds

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        people, places = self.names["person"], self.names["place"]
        return {
            "line": LINES,
            "said": ("name", *PRONOUNS),
            "person": people,
            "place": places,
            "she": people[::2],
            "he": people[1::2],
            **dict.fromkeys(self.askable, places),
            "answer": places,
        }

    @property
    def askable(self) -> list[str]:
        return self.places_of_people

    @property
    def n_uniforms(self) -> int:
        return (4 * STATEMENTS + 1) * self.rounds

    def generate(self, story: Story) -> None:
        count = STATEMENTS * self.rounds
        for_person, for_pronoun, for_verb, for_place, for_question = np.split(story.uniforms, count * np.arange(1, 5))
        place_of, meant_by = story.track(self.askable), story.track(PRONOUNS, since=1)
        last_move, last_named = story.table(self.people), story.table(self.people)
        spoken_of = story.table(len(PRONOUNS))  # the girl and the boy spoken of since the last question
        for n in range(count):
            by_pronoun = (for_pronoun[n] < SHARE) & (n % STATEMENTS > 0)
            pronoun = np.where(by_pronoun, choose_among(for_person[n], spoken_of.values >= 0), -1)
            person = np.where(by_pronoun, spoken_of[pronoun], choose(for_person[n], self.people))
            spoken_of[person % 2] = person
            meant_by[person % 2] = person // 2
            place = choose_other(for_place[n], place_of[person], self.places)
            place_of[person] = place
            form = choose(for_verb[n], len(MOVES)) + len(MOVES) * by_pronoun
            said = {"said": pronoun + 1, "person": person, "pronoun": pronoun}
            number = story.state(form, said, {"place": place})
            last_move[person] = number
            last_named.set(person, number, where=~by_pronoun)
            if (n + 1) % STATEMENTS == 0:
                person = choose_among(for_question[n // STATEMENTS], place_of.values >= 0)
                support = np.stack([last_move[person], last_named[person]])
                asked = {"said": np.zeros_like(person), "person": person}
                story.ask(ASK, asked, answer=place_of[person], support=support)
                spoken_of.values[:] = -1

    def guess(self, story: Story) -> dict[str, Float[np.ndarray, "b q c"]]:
        return {
            **guess_places(story, self.places),
            f"{LOOKS}any place of theirs": any_place_of_the_asked(story, self.places),
            f"{LOOKS}pronouns overlooked": self._by_name(story),
        }

    def _by_name(self, story: Story) -> Float[np.ndarray, "b q c"]:
        """The place in the last statement that names the person asked for; none where there is none."""
        people, places, said = (story.stated(name) for name in ("person", "place", "said"))
        named = last_occurrence(one_hot(people, self.people) & (said == 0)[..., None])[
            :, story.script.statements_before
        ]
        return certain(np.take_along_axis(places, pick(named, story.asked("person")), 1), self.places)
