"""Whether editing a factor inside a model changes its answers as the world would, and no others.

Two stories differ in one word (a minimal pair). At the tokens where a factor has another value in the second story, the
first story's activations are edited. Of the questions that the model answers right in both stories

    targeted   the answer differs between the two stories
    other      it does not, and the question is asked at or after the first edited token

    control    = share of targeted questions now answered as in the second story - share of other answers that changed
    ablation   = mean fall of the right answer's probability, targeted - other

Where there is no other question nothing is subtracted.
"""

from dataclasses import dataclass

import numpy as np

from unbraid.axes import Bool, Float, Int

FEWEST_QUESTIONS = 10
"""An effect on fewer targeted questions is not judged."""


@dataclass(frozen=True)
class Answers:
    """What a model answers to q questions of b stories, and how likely it holds the right answer."""

    chosen: Int[np.ndarray, "b q"]
    right: Float[np.ndarray, "b q"]
    """The probability of the right answer."""


@dataclass(frozen=True)
class Effect:
    """What an edit does to answers; NaN where no question tells it."""

    swapped: float
    """Share of targeted questions that are answered as in the other story."""
    side: float
    """Share of other questions whose answer changed."""
    drop: float
    """Mean fall of the right answer's probability, of targeted questions."""
    side_drop: float
    """The same of other questions."""

    @property
    def control(self) -> float:
        """Answers swapped, less other answers changed."""
        return self.swapped - _or_nothing(self.side)

    @property
    def ablation(self) -> float:
        """Probability lost where the factor decides the answer, less that lost where it does not."""
        return self.drop - _or_nothing(self.side_drop)


def effect(
    before: Answers,
    after: Answers,
    other_answers: Int[np.ndarray, "b q"],
    targeted: Bool[np.ndarray, "b q"],
    others: Bool[np.ndarray, "b q"],
) -> Effect:
    """What an edit did.

    Parameters
    ----------
    before, after : Answers
        Of the model without and with the edit.
    other_answers : array of int, shape (b, q)
        The right answers in the stories that have the other word.
    targeted, others : array of bool, shape (b, q)
        The questions whose answer should become the other one, and those whose answer should stay.

    Returns
    -------
    Effect
        NaN throughout where fewer than 10 questions are targeted.

    Examples
    --------
    >>> import numpy as np
    >>> chosen, right = np.zeros((10, 2), int), np.ones((10, 2))
    >>> after = Answers(np.tile([1, 0], (10, 1)), np.tile([0.1, 1.0], (10, 1)))
    >>> first = np.tile([True, False], (10, 1))
    >>> done = effect(Answers(chosen, right), after, chosen + 1, first, ~first)
    >>> done.control, round(done.ablation, 3)
    (1.0, 0.9)
    """
    if targeted.sum() < FEWEST_QUESTIONS:
        return Effect(*[float("nan")] * 4)
    lost = before.right - after.right
    return Effect(
        swapped=_mean(after.chosen == other_answers, targeted),
        side=_mean(after.chosen != before.chosen, others),
        drop=_mean(lost, targeted),
        side_drop=_mean(lost, others),
    )


def judged_questions(
    before: Answers, other_before: Answers, answers: Int[np.ndarray, "b q"], other_answers: Int[np.ndarray, "b q"]
) -> Bool[np.ndarray, "b q"]:
    """The questions that the model answers right in both stories: of others no edit can tell anything."""
    return (before.chosen == answers) & (other_before.chosen == other_answers)


def _mean(values: np.ndarray, where: Bool[np.ndarray, "b q"]) -> float:
    return float(values[where].mean()) if where.any() else float("nan")


def _or_nothing(side: float) -> float:
    return 0.0 if np.isnan(side) else side
