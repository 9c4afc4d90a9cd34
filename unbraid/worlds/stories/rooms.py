"""People come in and go out again: the happenings behind `counting` and `ratio`."""

from dataclasses import dataclass

import numpy as np

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories.drawing import SMALL, at, choose, choose_among

ENTERING = 0.7
"""How often somebody comes in, when somebody could and somebody else could go."""
ENTERED, LEFT = range(2)


@dataclass(frozen=True)
class Visits:
    who: Int[np.ndarray, "b n"]
    what: Int[np.ndarray, "b n"]
    where: Int[np.ndarray, "b n"]
    inside: Int[np.ndarray, "b n+1 person"]
    """The room of everybody before the first statement and after each; -1 for none."""


def visit(dice: Float[np.ndarray, "b 3 n"], people: int, rooms: int) -> Visits:
    """Anybody who is in no room enters any, or anybody who is in one leaves it."""
    stories, _, count = dice.shape
    who, what, where = (np.empty((stories, count), SMALL) for _ in range(3))
    inside = np.full((stories, count + 1, people), -1, SMALL)
    for n in range(count):
        before = inside[:, n]
        enters = _enters(dice[:, 0, n], before >= 0)
        who[:, n] = choose_among(dice[:, 1, n], (before >= 0) != enters[:, None])
        what[:, n] = np.where(enters, ENTERED, LEFT)
        where[:, n] = np.where(enters, choose(dice[:, 2, n], rooms), at(before, who[:, n]))
        inside[:, n + 1] = before
        np.put_along_axis(inside[:, n + 1], who[:, [n]], np.where(enters, where[:, n], -1)[:, None], 1)
    return Visits(who, what, where, inside)


def _enters(dice: Float[np.ndarray, "b"], inside: Bool[np.ndarray, "b person"]) -> Bool[np.ndarray, "b"]:
    return ((dice < ENTERING) | ~inside.any(1)) & ~inside.all(1)
