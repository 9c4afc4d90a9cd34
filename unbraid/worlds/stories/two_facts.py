"""Where a thing is, by who took it and where they are, or were when they dropped it: in the manner of bAbI's task 2.

Three statements and a question, four times. Somebody moves; or takes, where they are known to be, a thing that nobody
holds and that lies there or has not been heard of; or drops one. A question is about any thing that has been heard of.
"""

import numpy as np
from pydantic import Field

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories import guesses
from unbraid.worlds.stories.carrying import MOVED, TOOK, Acts
from unbraid.worlds.stories.drawing import at, choose_among, last, one_of
from unbraid.worlds.stories.task import GIRLS_AND_BOYS, LINES, LOOKS, MOVES, PLACES, Tale, Task

THINGS = ("football", "milk", "apple", "book")
ACTS = ("moved", "took", "dropped")
MOVING = tuple(move.replace("} ", "} *", 1) for move in MOVES)
TAKING, DROPPING = (
    tuple(f"{{person}} *{verb} the {{thing}} ." for verb in verbs)
    for verbs in (("took", "got"), ("dropped", "put down"))
)
COUNTS = np.array([len(MOVING), len(TAKING), len(DROPPING)])
FIRST = np.cumsum(COUNTS) - COUNTS
ASK = int(COUNTS.sum())
STATEMENTS = 3
"""Before each question."""


class TwoFacts(Task):
    people: int = Field(default=3, ge=1, le=len(GIRLS_AND_BOYS))
    places: int = Field(default=4, ge=2, le=len(PLACES))
    things: int = Field(default=2, ge=1, le=len(THINGS))
    rounds: int = Field(default=4, ge=1, le=16)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        people, places, things = GIRLS_AND_BOYS[: self.people], PLACES[: self.places], THINGS[: self.things]
        return {"person": people, "place": places, "thing": things}

    @property
    def forms(self) -> tuple[str, ...]:
        return (*MOVING, *TAKING, *DROPPING, "where is the {thing} ?")

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return (*[tuple(range(ASK))] * STATEMENTS, (ASK,)) * self.rounds

    @property
    def answers(self) -> tuple[str, ...]:
        return self.names["place"]

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        people, places, things = self.names.values()
        return {
            "line": LINES,
            "person": people,
            "act": ACTS,
            "place": places,
            "thing": things,
            **{f"place of {person}": places for person in people},
            **{f"holder of {thing}": people for thing in things},
            **dict.fromkeys(self.askable, places),
            "answer": places,
        }

    @property
    def askable(self) -> list[str]:
        return [f"place of {thing}" for thing in self.names["thing"]]

    @property
    def dice(self) -> int:
        return (4 * STATEMENTS + 1) * self.rounds

    def tell(self, dice: Float[np.ndarray, "b k"]) -> Tale:
        script, count = self.script, STATEMENTS * self.rounds
        done, how, what = np.split(dice, [3 * count, 4 * count], axis=1)
        acts = Acts.of(done.reshape(-1, 3, count), self.people, self.places, self.things, int(script.told[0]))
        lies = acts.lies[:, script.told]
        asked = choose_among(what, lies >= 0)
        forms = FIRST[acts.what] + (how * COUNTS[acts.what]).astype(int)
        named = np.where(acts.what == MOVED, acts.where, acts.which)
        answers = at(lies, asked)
        tracked = np.concatenate([acts.stands, acts.held, acts.lies], axis=2)
        number = script.sentences.number
        return Tale(
            sentences=script.number(number(forms, acts.who, named), number(ASK, asked)),
            answers=answers,
            support=self._support(acts, asked),
            factors={
                "line": script.kinds(len(dice)),
                "person": script.mentioned(acts.who),
                "act": script.mentioned(acts.what, since=2),
                "place": script.mentioned(acts.where, since=3),
                "thing": script.mentioned(acts.which, asked, since=3),
                **dict(zip(list(self.factors)[5:-1], script.tracked(tracked, since=3), strict=True)),
                "answer": script.mentioned(asked=answers),
            },
        )

    def _support(self, acts: Acts, asked: Int[np.ndarray, "b q"]) -> Bool[np.ndarray, "b q n"]:
        """The last statement about the thing, and the last move of who took it, or of who dropped it until then."""
        told, count = self.script.told, acts.what.shape[1]
        fact = at(last(one_of(acts.which, self.things))[:, told], asked)
        what, who = (np.take_along_axis(done, fact, 1) for done in (acts.what, acts.who))
        moves = last(one_of(acts.who, self.people) & (acts.what == MOVED)[..., None])
        since = np.where(what == TOOK, told, fact)
        move = at(np.take_along_axis(moves, since[..., None], 1), who)
        return one_of(fact, count) | one_of(move, count)

    def guess(self, tale: Tale) -> dict[str, Float[np.ndarray, "b q c"]]:
        given = self.script, tale, self.places
        return {
            **guesses.of_places(*given),
            f"{LOOKS}carrying overlooked": self._where_last_handled(tale),
        }

    def _where_last_handled(self, tale: Tale) -> Float[np.ndarray, "b q c"]:
        """The place where the thing was last taken or dropped."""
        script = self.script
        asked = guesses.asked(script, tale, "thing")
        handled = at(last(one_of(guesses.stated(script, tale, "thing"), self.things))[:, script.told], asked)
        lies = np.stack([guesses.stated(script, tale, name) for name in self.askable], axis=-1)
        return guesses.sure(at(np.take_along_axis(lies, handled[..., None], 1), asked), self.places)
