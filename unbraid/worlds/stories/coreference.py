"""Where somebody is, when statements say "she" or "he" for the last girl or boy that a statement spoke of.

Three statements and a question, four times. The first statement names somebody; the others name somebody or say a
pronoun, for somebody spoken of since the last question. A question is about any of those whose place is known.
"""

import numpy as np
from pydantic import Field

from unbraid.axes import Float, Int
from unbraid.worlds.stories import guesses
from unbraid.worlds.stories.drawing import SMALL, at, choose, choose_among, last, one_of, walk
from unbraid.worlds.stories.task import GIRLS_AND_BOYS, LINES, LOOKS, MOVES, PLACES, Tale, Task

PRONOUNS = ("she", "he")
SAYING_PRONOUNS = tuple(move.replace("{person}", "then {pronoun}") for move in MOVES)
ASK = len(MOVES) + len(SAYING_PRONOUNS)
STATEMENTS = 3
"""Before each question."""
SHARE = 2 / 3
"""How often a statement that may say a pronoun does."""


class Coreference(Task):
    people: int = Field(default=4, ge=2, le=len(GIRLS_AND_BOYS))
    places: int = Field(default=6, ge=2, le=len(PLACES))
    rounds: int = Field(default=4, ge=1, le=16)

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
    def answers(self) -> tuple[str, ...]:
        return self.names["place"]

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        people, places = self.names["person"], self.names["place"]
        return {
            "line": LINES,
            "said": ("name", *PRONOUNS),
            "person": people,
            "place": places,
            "she": people,
            "he": people,
            **dict.fromkeys(self.askable, places),
            "answer": places,
        }

    @property
    def askable(self) -> list[str]:
        return [f"place of {person}" for person in self.names["person"]]

    @property
    def dice(self) -> int:
        return (4 * STATEMENTS + 1) * self.rounds

    def tell(self, dice: Float[np.ndarray, "b k"]) -> Tale:
        script, count = self.script, STATEMENTS * self.rounds
        who, says, how, where, whom = np.split(dice, [count, 2 * count, 3 * count, 4 * count], axis=1)
        movers, pronouns = self._speak(who, says)
        states = walk(movers, where, self.people, self.places)
        goals = at(states[:, 1:], movers)
        asked = choose_among(whom, states[:, script.told] >= 0)
        answers = at(states[:, script.told], asked)
        verbs, moved = choose(how, len(MOVES)), one_of(movers, self.people)
        latest, named = (at(last(said)[:, script.told], asked) for said in (moved, moved & (pronouns < 0)[..., None]))
        stated = script.sentences.number(
            verbs + len(MOVES) * (pronouns >= 0), np.where(pronouns < 0, movers, pronouns), goals
        )
        return Tale(
            sentences=script.number(stated, script.sentences.number(ASK, asked)),
            answers=answers,
            support=one_of(latest, count) | one_of(named, count),
            factors={
                "line": script.kinds(len(dice)),
                "said": script.mentioned(pronouns + 1, np.zeros_like(asked)),
                "person": script.mentioned(movers, asked),
                "place": script.mentioned(goals, since=2),
                **dict(zip(PRONOUNS, script.tracked(_spoken_of(movers), since=1), strict=True)),
                **dict(zip(self.askable, script.tracked(states), strict=True)),
                "answer": script.mentioned(asked=answers),
            },
        )

    def _speak(
        self, who: Float[np.ndarray, "b n"], says: Float[np.ndarray, "b n"]
    ) -> tuple[Int[np.ndarray, "b n"], Int[np.ndarray, "b n"]]:
        """Whom each statement is about, and which pronoun it says for them; -1 for their name."""
        who, says = (dice.reshape(-1, self.rounds, STATEMENTS) for dice in (who, says))
        movers, pronouns = choose(who, self.people), np.full(who.shape, -1, SMALL)
        spoken_of = np.full((*who.shape[:2], len(PRONOUNS)), -1, SMALL)
        for n in range(STATEMENTS):
            if n > 0:
                pronoun = choose_among(who[:, :, n], spoken_of >= 0)
                pronouns[:, :, n] = np.where(says[:, :, n] < SHARE, pronoun, -1)
                movers[:, :, n] = np.where(says[:, :, n] < SHARE, at(spoken_of, pronoun), movers[:, :, n])
            np.put_along_axis(spoken_of, movers[:, :, [n]] % 2, movers[:, :, [n]], 2)
        return movers.reshape(len(who), -1), pronouns.reshape(len(who), -1)

    def guess(self, tale: Tale) -> dict[str, Float[np.ndarray, "b q c"]]:
        given = self.script, tale, self.places
        return {
            **guesses.of_places(*given),
            f"{LOOKS}any place of theirs": guesses.any_place_of_the_asked(*given),
            f"{LOOKS}pronouns overlooked": self._by_name(tale),
        }

    def _by_name(self, tale: Tale) -> Float[np.ndarray, "b q c"]:
        """The place in the last statement that names the person asked for; none where there is none."""
        script = self.script
        people, places, said = (guesses.stated(script, tale, name) for name in ("person", "place", "said"))
        asked = guesses.asked(script, tale, "person")
        named = at(last(one_of(people, self.people) & (said == 0)[..., None])[:, script.told], asked)
        return guesses.sure(np.take_along_axis(places, named, 1), self.places)


def _spoken_of(movers: Int[np.ndarray, "b n"]) -> Int[np.ndarray, "b n+1 2"]:
    """The last girl and the last boy that a statement was about, before the first statement and after each."""
    latest = last(one_of(movers % 2, len(PRONOUNS)))
    whom = np.take_along_axis(movers[..., None], np.maximum(latest, 0), 1)
    return np.where(latest < 0, -1, whom)
