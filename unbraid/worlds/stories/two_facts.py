"""Where a thing is, by who took it and where they are, or were when they dropped it: in the manner of bAbI's task 2.

Three statements and a question, four times. Somebody moves; or takes, where they are known to be, a thing that nobody
holds and that lies there or has not been heard of; or drops one. A question is about any thing that has been heard of.
"""

import numpy as np
from pydantic import Field

from unbraid.axes import Float, Int
from unbraid.worlds.stories.story import Story, choose, choose_among, choose_other
from unbraid.worlds.stories.task import (
    GIRLS_AND_BOYS,
    LINES,
    LOOKS,
    MOVES,
    PLACES,
    Task,
    certain,
    guess_places,
    last_occurrence,
    one_hot,
    pick,
)

THINGS = ("football", "milk", "apple", "book")
ACTS = ("moved", "took", "dropped")
MOVED, TOOK, DROPPED = range(3)
MOVING, DROPPING = 0.5, 0.1
"""How often somebody moves and how often something is dropped, if it can be; else something is taken, if it can be."""
FORMS = (
    tuple(move.replace("} ", "} *", 1) for move in MOVES),
    tuple(f"{{person}} *{verb} the {{thing}} ." for verb in ("took", "got")),
    tuple(f"{{person}} *{verb} the {{thing}} ." for verb in ("dropped", "put down")),
)
"""For each act the ways to say it."""
COUNTS = np.array([len(forms) for forms in FORMS])
FIRST = np.cumsum(COUNTS) - COUNTS
ASK = int(COUNTS.sum())
STATEMENTS = 3
"""Before each question."""


class TwoFacts(Task):
    people: int = Field(default=3, ge=1, le=len(GIRLS_AND_BOYS))
    """How many people there are; more have more places to be remembered."""
    places: int = Field(default=4, ge=2, le=len(PLACES))
    """How many places there are, which are the answers; more make guessing harder."""
    things: int = Field(default=2, ge=1, le=len(THINGS))
    """How many things can be taken and asked for; more have more holders to be remembered."""
    rounds: int = Field(default=4, ge=1, le=16)
    """Questions in a story, each after three statements; more make it longer."""

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        people, places, things = GIRLS_AND_BOYS[: self.people], PLACES[: self.places], THINGS[: self.things]
        return {"person": people, "place": places, "thing": things}

    @property
    def forms(self) -> tuple[str, ...]:
        return (*(form for forms in FORMS for form in forms), "where is the {thing} ?")

    @property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        return (*[tuple(range(ASK))] * STATEMENTS, (ASK,)) * self.rounds

    @property
    def factors(self) -> dict[str, tuple[str, ...]]:
        people, places, things = self.names.values()
        mentioned = {"line": LINES, "person": people, "act": ACTS, "place": places, "thing": things}
        return {
            **mentioned,
            **dict.fromkeys(self.places_of_people, places),
            **dict.fromkeys(self._holders, people),
            **dict.fromkeys(self.askable, places),
            "answer": places,
        }

    @property
    def _holders(self) -> list[str]:
        return [f"holder of {thing}" for thing in self.names["thing"]]

    @property
    def askable(self) -> list[str]:
        return [f"place of {thing}" for thing in self.names["thing"]]

    @property
    def n_uniforms(self) -> int:
        return (4 * STATEMENTS + 1) * self.rounds

    def generate(self, story: Story) -> None:
        count = STATEMENTS * self.rounds
        for_act, for_pair, for_place, for_verb, for_question = np.split(story.uniforms, count * np.arange(1, 5))
        place_of, holder_of, place_of_thing = map(story.track, (self.places_of_people, self._holders, self.askable))
        last_move, last_handled = story.table(self.people), story.table(self.things)
        brought = story.table(self.things)  # the last move, when the thing was handled, of who handled it
        for n in range(count):
            # Before the first question something is taken at last.
            must = (n + 1 == STATEMENTS) & (place_of_thing.values < 0).all(0)
            act, person, thing = self._act(
                np.where(must, MOVING, for_act[n]),
                for_pair[n],
                place_of.values,
                holder_of.values,
                place_of_thing.values,
            )
            moves, handles = act == MOVED, act != MOVED
            place = np.where(moves, choose_other(for_place[n], place_of[person], self.places), -1)
            place_of.set(person, place, where=moves)
            holder_of.set(thing, np.where(act == TOOK, person, -1), where=handles)
            held = holder_of.values >= 0  # what is held goes where its holder goes
            place_of_thing.values[:] = np.where(held, place_of[holder_of.values], place_of_thing.values)
            form = FIRST[act] + (for_verb[n] * COUNTS[act]).astype(int)
            number = story.state(form, {"person": person}, {"act": act}, {"place": place, "thing": thing})
            last_move.set(person, number, where=moves)
            last_handled.set(thing, number, where=handles)
            brought.set(thing, last_move[person], where=handles)
            if (n + 1) % STATEMENTS == 0:
                thing = choose_among(for_question[n // STATEMENTS], place_of_thing.values >= 0)
                holder = holder_of[thing]
                move = np.where(holder >= 0, last_move[holder], brought[thing])
                support = np.stack([last_handled[thing], move])
                story.ask(ASK, {"thing": thing}, answer=place_of_thing[thing], support=support)

    def _act(
        self,
        for_act: Float[np.ndarray, "b"],
        for_pair: Float[np.ndarray, "b"],
        place_of: Int[np.ndarray, "person b"],
        holder_of: Int[np.ndarray, "thing b"],
        place_of_thing: Int[np.ndarray, "thing b"],
    ) -> tuple[Int[np.ndarray, "b"], Int[np.ndarray, "b"], Int[np.ndarray, "b"]]:
        """What is done, by whom, with which thing: anybody moves, or any pair of a person and a thing that can be."""
        holds = holder_of == np.arange(self.people)[:, None, None]
        free, stands = ~holds.any(1, keepdims=True), place_of[:, None]
        lies_there = (place_of_thing < 0) | (place_of_thing == stands)
        can_take = free & (stands >= 0) & (holder_of < 0) & lies_there
        drops = for_act >= 1 - DROPPING
        can = np.where(drops, holds, can_take).reshape(self.people * self.things, -1)
        handles = can.any(0) & (for_act >= MOVING)
        pair = choose_among(for_pair, can)
        act = np.where(handles, np.where(drops, DROPPED, TOOK), MOVED)
        person = np.where(handles, pair // self.things, choose(for_pair, self.people))
        return act, person, np.where(handles, pair % self.things, -1)

    def guess(self, story: Story) -> dict[str, Float[np.ndarray, "b q c"]]:
        return {
            **guess_places(story, self.places),
            f"{LOOKS}carrying overlooked": self._where_last_handled(story),
        }

    def _where_last_handled(self, story: Story) -> Float[np.ndarray, "b q c"]:
        """The place where the thing was last taken or dropped."""
        asked = story.asked("thing")
        handled = pick(
            last_occurrence(one_hot(story.stated("thing"), self.things))[:, story.script.statements_before], asked
        )
        lies = np.stack([story.stated(name) for name in self.askable], axis=-1)
        return certain(pick(np.take_along_axis(lies, handled[..., None], 1), asked), self.places)
