"""People come in and go out again: the happenings behind `counting` and `ratio`."""

from dataclasses import dataclass

import numpy as np

from unbraid.axes import Bool, Float, Int
from unbraid.worlds.stories.drawing import SMALL, choose, choose_among, unknown

ENTERING = 0.6
"""How often somebody comes in, when somebody could and somebody else could go."""
ENTERED, LEFT = range(2)


@dataclass(frozen=True)
class Visits:
    who: Int[np.ndarray, "b n"]
    what: Int[np.ndarray, "b n"]
    where: Int[np.ndarray, "b n"]
    inside: Int[np.ndarray, "b time person"]
    """The room of everybody before the first statement and after each; -1 for none."""

    def counts(self, where: Bool[np.ndarray, "b n place"]) -> Int[np.ndarray, "b time place"]:
        """How many are in each room before the first statement and after each; `where` says which a statement names."""
        change = where * np.where(self.what == ENTERED, 1, -1).astype(SMALL)[..., None]
        counts = np.cumsum(change, axis=1, dtype=SMALL)
        return np.concatenate([np.zeros_like(counts[:, :1]), counts], axis=1)


def visit(dice: Float[np.ndarray, "b 3 n"], people: int, rooms: int) -> Visits:
    """Anybody who is in no room enters any, or anybody who is in one leaves it."""
    stories, _, count = dice.shape
    who, what, where = (unknown(stories, count) for _ in range(3))
    inside, row = unknown(stories, count + 1, people), np.arange(stories)
    for n in range(count):
        before, after = inside[:, n], inside[:, n + 1]
        enters = _enters(dice[:, 0, n], before >= 0)
        who[:, n] = choose_among(dice[:, 1, n], (before >= 0) != enters[:, None])
        what[:, n] = np.where(enters, ENTERED, LEFT)
        where[:, n] = np.where(enters, choose(dice[:, 2, n], rooms), before[row, who[:, n]])
        after[:] = before
        after[row, who[:, n]] = np.where(enters, where[:, n], -1)
    return Visits(who, what, where, inside)


def _enters(dice: Float[np.ndarray, "b"], inside: Bool[np.ndarray, "b person"]) -> Bool[np.ndarray, "b"]:
    return ((dice < ENTERING) | ~inside.any(1)) & ~inside.all(1)
