"""People move, take things along and drop them: the happenings behind `two_facts`."""

from dataclasses import dataclass

import numpy as np

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories.drawing import choose, choose_among, one_of, unknown

MOVED, TOOK, DROPPED = range(3)
MOVING, DROPPING = 0.5, 0.1
"""How often somebody moves and how often something is dropped, if it can be; else something is taken, if it can be."""


@dataclass(frozen=True)
class Acts:
    """What is done, and where everybody and everything is before the first statement and after each; -1 for nowhere."""

    what: Int[np.ndarray, "b n"]
    who: Int[np.ndarray, "b n"]
    where: Int[np.ndarray, "b n"]
    which: Int[np.ndarray, "b n"]
    stands: Int[np.ndarray, "b time person"]
    held: Int[np.ndarray, "b time thing"]
    """Who holds each thing."""
    lies: Int[np.ndarray, "b time thing"]
    """Where each thing is, held or not."""

    @classmethod
    def of(cls, dice: Float[np.ndarray, "b 3 n"], people: int, places: int, things: int, taken_by: int) -> "Acts":
        """Something is taken at the latest with statement number `taken_by`."""
        stories, _, count = dice.shape
        done = [unknown(stories, count) for _ in range(4)]
        acts = cls(*done, *(unknown(stories, count + 1, number) for number in (people, things, things)))
        for n in range(count):
            acts._decide(n, dice[:, 0, n], dice[:, 1, n], must=n + 1 == taken_by)
            acts._perform(n, dice[:, 2, n], places)
        return acts

    def _decide(self, n: int, whether: Float[np.ndarray, "b"], whom: Float[np.ndarray, "b"], must: bool) -> None:
        """Who does what with which thing: anybody moves, or any pair of a person and a thing that can be."""
        people, things = self.stands.shape[2], self.held.shape[2]
        whether = np.where(must & (self.lies[:, n] < 0).all(1), MOVING, whether)
        drops = whether >= 1 - DROPPING
        holds = self._holds(n)
        can = np.where(drops[:, None, None], holds, self._can_take(n, holds)).reshape(len(drops), -1)
        handles = can.any(1) & (whether >= MOVING)
        choice = choose_among(whom, can)
        self.what[:, n] = np.where(handles, np.where(drops, DROPPED, TOOK), MOVED)
        self.who[:, n] = np.where(handles, choice // things, choose(whom, people))
        self.which[:, n] = np.where(handles, choice % things, -1)

    def _can_take(self, n: int, holds: Bool[np.ndarray, "b person thing"]) -> Bool[np.ndarray, "b person thing"]:
        """Which person may take which thing: who holds none, one that nobody holds and that may be where they are."""
        stands, held, lies = self.stands[:, n, :, None], self.held[:, n, None], self.lies[:, n, None]
        free = ~holds.any(2, keepdims=True)
        return free & (stands >= 0) & (held < 0) & ((lies < 0) | (lies == stands))

    def _holds(self, n: int) -> Bool[np.ndarray, "b person thing"]:
        """Which person holds which thing, and so may drop it."""
        return one_of(self.held[:, n], self.stands.shape[2]).swapaxes(1, 2)

    def _perform(self, n: int, whither: Float[np.ndarray, "b"], places: int) -> None:
        """A move leads to any other place, a first one to any; what is held goes where its holder goes."""
        who, which, moves = self.who[:, n], np.maximum(self.which[:, n], 0), self.what[:, n] == MOVED
        stands, held, lies = self.stands[:, n + 1], self.held[:, n + 1], self.lies[:, n + 1]
        stands[:], held[:], lies[:] = self.stands[:, n], self.held[:, n], self.lies[:, n]
        row = np.arange(len(who))
        here, holder = stands[row, who], held[row, which]
        goal = np.where(here < 0, choose(whither, places), (here + 1 + choose(whither, places - 1)) % places)
        self.where[:, n] = np.where(moves, goal, -1)
        stands[row, who] = np.where(moves, goal, here)
        held[row, which] = np.where(moves, holder, np.where(self.what[:, n] == TOOK, who, -1))
        lies[:] = np.where(held < 0, lies, stands[row[:, None], held])
