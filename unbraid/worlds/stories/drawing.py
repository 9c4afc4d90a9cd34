"""Choices out of dice, numbers in [0, 1), for all stories at once."""

import numpy as np

from unbraid.axes import Bool, Float, Int

SMALL = np.int16
"""What stories count in: a batch is many of them, and narrow numbers are quicker to move."""


def unknown(stories: int, times: int, *more: int) -> Int[np.ndarray, "b time *more"]:
    """-1 everywhere; all stories at one time lie side by side, since that is how they are told."""
    return np.full((times, stories, *more), -1, SMALL).swapaxes(0, 1)


def choose(dice: Float[np.ndarray, "*any"], count: int) -> Int[np.ndarray, "*any"]:
    """One of so many, each as likely."""
    return (dice * count).astype(SMALL)


def choose_among(dice: Float[np.ndarray, "*any"], allowed: Bool[np.ndarray, "*any n"]) -> Int[np.ndarray, "*any"]:
    """One of those allowed, each as likely; there must be one."""
    upto = np.cumsum(allowed, axis=-1, dtype=SMALL)
    return (upto > (dice * upto[..., -1]).astype(SMALL)[..., None]).argmax(-1)


def shuffle(dice: Float[np.ndarray, "*any n"]) -> Int[np.ndarray, "*any n"]:
    """The numbers below n in any order, each as likely."""
    return dice.argsort(-1)


def at(table: np.ndarray, index: Int[np.ndarray, "*any"]) -> np.ndarray:
    """The entry of each row of the last axis that the index names."""
    return np.take_along_axis(table, index[..., None], -1)[..., 0]


def one_of(index: Int[np.ndarray, "*any"], count: int) -> Bool[np.ndarray, "*any n"]:
    """Which of so many the index names; none where it is -1."""
    return index[..., None] == np.arange(count, dtype=SMALL)


def any_of(index: Int[np.ndarray, "*any k"], count: int) -> Bool[np.ndarray, "*any n"]:
    """Which of so many any of these names; -1 names none."""
    named = np.zeros((*index.shape[:-1], count + 1), bool)
    np.put_along_axis(named, index, True, -1)  # -1 is the last column, which is left out
    return named[..., :count]


def walk(
    movers: Int[np.ndarray, "b n"], dice: Float[np.ndarray, "b n"], people: int, places: int
) -> Int[np.ndarray, "b time person"]:
    """Where everybody is before the first move and after each: -1 before their first, and always another place.

    A move adds to the number of a place, modulo `places`, what does not lead back to it; a first move may lead to any.
    """
    moves = one_of(movers, people)
    known = np.cumsum(moves, axis=1, dtype=SMALL)
    steps = np.where(at(known, movers) == 1, choose(dice, places), 1 + choose(dice, places - 1))
    whereabouts = np.where(known > 0, np.cumsum(moves * steps[..., None], axis=1, dtype=SMALL) % places, -1)
    return np.concatenate([np.full_like(whereabouts[:, :1], -1), whereabouts], axis=1)


def last(happens: Bool[np.ndarray, "b n *any"]) -> Int[np.ndarray, "b time *any"]:
    """The last statement at which it happened, before the first statement and after each; -1 for none."""
    shape = (-1, *[1] * (happens.ndim - 2))
    latest = np.maximum.accumulate(
        np.where(happens, np.arange(happens.shape[1], dtype=SMALL).reshape(shape), -1), axis=1
    )
    return np.concatenate([np.full_like(latest[:, :1], -1), latest], axis=1)
