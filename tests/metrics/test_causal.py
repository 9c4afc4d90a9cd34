"""Effects of edits on answers, from answers written down by hand."""

import math

import numpy as np
import pytest

from unbraid.metrics.causal import FEWEST_QUESTIONS, Answers, effect, judged_questions


def answers(chosen: list[list[int]], right: list[list[float]] | None = None) -> Answers:
    array = np.array(chosen)
    return Answers(array, np.ones(array.shape) if right is None else np.array(right))


BEFORE = answers([[0, 2]] * 12)
OTHER = np.array([[1, 2]] * 12)
TARGETED = np.array([[True, False]] * 12)


def test_control_is_answers_swapped_less_other_answers_changed():
    # Of twelve targeted answers nine become the other story's, two become a third; of twelve others three change.
    after = answers([[1, 0]] * 3 + [[1, 2]] * 6 + [[3, 2]] * 2 + [[0, 2]])
    done = effect(BEFORE, after, OTHER, TARGETED, ~TARGETED)
    assert (done.swapped, done.side) == (9 / 12, 3 / 12)
    assert done.control == 6 / 12


def test_ablation_is_probability_lost_where_it_matters_less_that_lost_elsewhere():
    after = answers(BEFORE.chosen.tolist(), [[0.25, 1.0]] * 6 + [[0.75, 0.5]] * 6)
    done = effect(BEFORE, after, OTHER, TARGETED, ~TARGETED)
    assert done.drop == pytest.approx(0.5)
    assert done.side_drop == pytest.approx(0.25)
    assert done.ablation == pytest.approx(0.25)
    assert done.control == 0


def test_an_edit_that_changes_every_answer_controls_nothing():
    after = answers([[1, 0]] * 12)
    assert effect(BEFORE, after, OTHER, TARGETED, ~TARGETED).control == 0


def test_without_other_questions_nothing_is_subtracted():
    done = effect(BEFORE, answers([[1, 2]] * 12), OTHER, TARGETED, np.zeros_like(TARGETED))
    assert math.isnan(done.side)
    assert done.control == 1


def test_few_questions_are_not_judged():
    few = TARGETED & (np.arange(12) < FEWEST_QUESTIONS - 1)[:, None]
    done = effect(BEFORE, BEFORE, OTHER, few, ~TARGETED)
    assert math.isnan(done.control)
    assert math.isnan(done.ablation)


def test_a_question_counts_where_both_stories_are_answered_right():
    first, second = answers([[0, 2], [0, 0]]), answers([[1, 2], [1, 2]])
    right = judged_questions(first, second, np.array([[0, 2], [0, 2]]), np.array([[1, 1], [1, 2]]))
    assert right.tolist() == [[True, False], [True, False]]
