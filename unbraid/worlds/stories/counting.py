"""People come in and go out again. How many are in a room, and what is the ratio of boys to girls?

The answer is spread over everybody who came in or went out. Three statements and a question, four times. `counting`
asks about any room that has been named; `ratio` has one room and needs two counts, reduced (2 boys and 2 girls: 1:1).
"""

from functools import cached_property
from math import gcd

import numpy as np
from pydantic import Field

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories.story import Story, choose, choose_among
from unbraid.worlds.stories.task import GIRLS_AND_BOYS, LINES, LOOKS, PLACES, Task, certain, one_hot, pick

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight")
ACTS = ("entered", "left")
ENTERED, LEFT, ASK = range(3)
ENTERING = 0.6
"""How often somebody comes in, when somebody could and somebody else could go."""
STATEMENTS = 3
"""Before each question."""


def come_or_go(
    for_act: Float[np.ndarray, "b"], for_person: Float[np.ndarray, "b"], inside: Bool[np.ndarray, "person b"]
) -> tuple[Int[np.ndarray, "b"], Int[np.ndarray, "b"]]:
    """Anybody who is in no room enters, or anybody who is in one leaves: who, and which of the two."""
    enters = ((for_act < ENTERING) | ~inside.any(0)) & ~inside.all(0)
    return choose_among(for_person, inside != enters), np.where(enters, ENTERED, LEFT)


class Counting(Task):
    people: int = Field(default=6, ge=2, le=len(GIRLS_AND_BOYS))
    """How many people there are; more make larger counts."""
    places: int = Field(default=2, ge=1, le=len(PLACES))
    """How many rooms there are; more have more counts to be remembered."""
    rounds: int = Field(default=4, ge=1, le=16)
    """Questions in a story, each after three statements; more make it longer."""

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
            **dict.fromkeys(self.places_of_people, (*places, "outside")),
            **dict.fromkeys(self.askable, self.answers),
            "answer": self.answers,
        }

    @property
    def askable(self) -> list[str]:
        return [f"count in {place}" for place in self.names["place"]]

    @property
    def n_uniforms(self) -> int:
        return (3 * STATEMENTS + 1) * self.rounds

    def generate(self, story: Story) -> None:
        count, outside = STATEMENTS * self.rounds, self.places
        for_act, for_person, for_place, for_question = np.split(story.uniforms, [count, 2 * count, 3 * count])
        place_of, count_in = story.track(self.places_of_people), story.track(self.askable)
        last_visit = story.table(self.people, self.places)
        for n in range(count):
            inside = (place_of.values >= 0) & (place_of.values < outside)
            person, act = come_or_go(for_act[n], for_person[n], inside)
            enters = act == ENTERED
            place = np.where(enters, choose(for_place[n], self.places), place_of[person])
            place_of[person] = np.where(enters, place, outside)
            count_in[place] = np.maximum(count_in[place], 0) + np.where(enters, 1, -1)
            last_visit[person, place] = story.state(act, {"person": person}, {"act": act}, {"place": place})
            if (n + 1) % STATEMENTS == 0:
                place = choose_among(for_question[n // STATEMENTS], count_in.values >= 0)
                story.ask(ASK, {"place": place}, answer=count_in[place], support=last_visit[:, place])

    def guess(self, story: Story) -> dict[str, Float[np.ndarray, "b q c"]]:
        classes = len(self.answers)
        counts = np.stack([story.asked(name) for name in self.askable])
        entries = (story.stated("act") == ENTERED)[..., None] & one_hot(story.stated("place"), self.places)
        entered = pick(np.cumsum(entries, axis=1)[:, story.script.statements_before - 1], story.asked("place"))
        return {
            "everybody inside": certain(np.maximum(counts, 0).sum(0), classes),
            f"{LOOKS}leaving overlooked": certain(np.minimum(entered, self.people), classes),
        }


class Ratio(Task):
    people: int = Field(default=6, ge=2, le=len(GIRLS_AND_BOYS))
    """How many people there are, every second one a boy; more make more ratios."""
    rounds: int = Field(default=4, ge=1, le=16)
    """Questions in a story, each after three statements; more make it longer."""

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
            **dict.fromkeys(self.places_of_people, ("inside", "outside")),
            "boys": counts[: self.people // 2 + 1],
            "girls": counts[: (self.people + 1) // 2 + 1],
            "ratio": self.answers,
            "answer": self.answers,
        }

    @property
    def n_uniforms(self) -> int:
        return 2 * STATEMENTS * self.rounds

    def generate(self, story: Story) -> None:
        inside, outside = range(2)
        count = STATEMENTS * self.rounds
        for_act, for_person = np.split(story.uniforms, [count])
        place_of, last_statement = story.track(self.places_of_people), story.table(self.people)
        counts = story.track(("boys", "girls", "ratio"), start=0)  # of nobody the ratio is answer 0, "0:0"
        for n in range(count):
            person, act = come_or_go(for_act[n], for_person[n], place_of.values == inside)
            place_of[person] = np.where(act == ENTERED, inside, outside)
            girls, boys = ((place_of.values[first::2] == inside).sum(0) for first in range(2))
            ratio = self._classes[boys, girls]
            counts.values[:] = boys, girls, ratio
            last_statement[person] = story.state(act, {"person": person}, {"act": act})
            if (n + 1) % STATEMENTS == 0:
                story.ask(ASK, {}, answer=ratio, support=last_statement.values)

    def guess(self, story: Story) -> dict[str, Float[np.ndarray, "b q c"]]:
        heard_of = np.stack([story.asked(name) >= 0 for name in self.places_of_people])
        girls, boys = heard_of[::2].sum(0), heard_of[1::2].sum(0)
        return {"leaving overlooked": certain(self._classes[boys, girls], len(self.answers))}

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
