"""Choices are as likely as they say and never what is not allowed; a story by hand is kept as it was told."""

import numpy as np
import pytest
from scipy import stats

from unbraid.worlds.stories.language import Form, Script, Sentences
from unbraid.worlds.stories.story import Story, Table, choose, choose_among, choose_other, choose_weighted, shuffle
from unbraid.worlds.stories.task import last_occurrence, one_hot, pick

SAMPLES = 60_000


def uniforms(rng, *shape):
    return rng.random(shape, dtype=np.float32)


def are_even(counts):
    return stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("count", [2, 5, 6])
def test_each_of_so_many_is_as_likely(rng, count):
    chosen = choose(uniforms(rng, SAMPLES), count)
    assert are_even(np.bincount(chosen, minlength=count))


@pytest.mark.parametrize("count", range(1, 70))
def test_the_largest_number_below_one_does_not_choose_one_too_many(count):
    largest = np.array([np.nextafter(np.float32(1), np.float32(0))])
    assert choose(largest, count) == count - 1
    assert choose_among(largest, np.ones((count, 1), bool)) == count - 1
    assert choose_weighted(largest, np.full((count, 1), 3)) == count - 1


def test_each_of_those_allowed_is_as_likely_and_no_other(rng):
    allowed = np.array([False, True, True, False, True, False])
    chosen = choose_among(uniforms(rng, SAMPLES), np.broadcast_to(allowed[:, None], (6, SAMPLES)))
    counts = np.bincount(chosen, minlength=6)
    assert not counts[~allowed].any()
    assert are_even(counts[allowed])


def test_each_is_as_likely_as_its_weight(rng):
    weights = np.array([5, 0, 6, 1])
    chosen = choose_weighted(uniforms(rng, SAMPLES), np.broadcast_to(weights[:, None], (4, SAMPLES)))
    counts = np.bincount(chosen, minlength=4)
    assert counts[1] == 0
    kept = weights > 0
    assert stats.chisquare(counts[kept], SAMPLES * weights[kept] / weights.sum()).pvalue > 1e-4


def test_another_is_never_the_same_and_from_nowhere_it_is_any(rng):
    here = rng.integers(-1, 4, SAMPLES)
    there = choose_other(uniforms(rng, SAMPLES), here, 4)
    assert are_even(np.bincount(there[here < 0], minlength=4))
    known = here >= 0
    assert (there[known] != here[known]).all()
    assert are_even(np.bincount((there[known] - here[known]) % 4, minlength=4)[1:])


def test_every_order_is_as_likely(rng):
    orders = shuffle(uniforms(rng, 3, SAMPLES)).T
    assert are_even(np.unique(orders, axis=0, return_counts=True)[1])
    assert len(np.unique(orders, axis=0)) == 6


def test_entries_and_marks_are_those_that_the_index_names():
    table = np.arange(12).reshape(2, 2, 3)
    assert pick(table, np.array([[0, 2], [1, 0]])).tolist() == [[0, 5], [7, 9]]
    assert one_hot(np.array([2, -1]), 3).tolist() == [[False, False, True], [False, False, False]]


def test_the_last_time_is_told_before_the_first_statement_and_after_each():
    happens = np.array([[False, True, False, True]])
    assert last_occurrence(happens).tolist() == [[-1, -1, 1, 1, 3]]
    assert last_occurrence(np.stack([happens, ~happens], axis=2))[0, :, 1].tolist() == [-1, 0, 0, 2, 2]


def test_a_table_has_an_entry_for_the_thing_of_each_story():
    table = Table(np.array([[1, 2, 3], [4, 5, 6]]))
    assert table[np.array([0, 1, 0])].tolist() == [1, 5, 3]
    assert table[1].tolist() == [4, 5, 6]
    table[np.array([1, 1, 0])] = np.array([7, 8, 9])
    assert table.values.tolist() == [[1, 2, 9], [7, 8, 6]]
    table.set(np.array([0, -1, 1]), 0, where=np.array([True, False, True]))
    assert table.values.tolist() == [[0, 2, 9], [7, 8, 0]]


def test_a_table_of_two_axes_may_be_read_along_one():
    table = Table(np.arange(12).reshape(2, 3, 2))
    assert table[np.array([0, 1]), np.array([2, 0])].tolist() == [4, 7]
    assert table[:, np.array([2, 0])].tolist() == [[4, 1], [10, 7]]


@pytest.fixture
def story():
    """Two stories: ann goes up in the first, bob goes down in the second; then it is asked where they are."""
    names = {"person": ("ann", "bob"), "way": ("up", "down")}
    forms = tuple(map(Form, ("{person} goes {way} .", "where is {person} ?")))
    script = Script(Sentences(forms, names), ((0,), (0,), (1,)))
    story = Story(script, ["line", "person", "way", "ann", "bob", "answer"], np.zeros((2, 1)))
    where = story.track(["ann", "bob"])
    first, second, way = np.array([0, 1]), np.array([1, 1]), np.array([0, 1])
    where[first] = way
    assert story.state(0, {"person": first}, {"way": way}) == 0
    where[second] = 1 - way
    assert story.state(0, {"person": second}, {"way": 1 - way}) == 1
    story.ask(1, {"person": first}, answer=where[first], support=np.array([[0, 1], [-1, 0]]))
    return story


def test_what_is_said_is_a_number_for_each_line(story):
    assert story.sentences.tolist() == [[0, 3, 4], [3, 2, 5]]
    assert story.answers.tolist() == [[0], [0]]


def test_what_is_told_is_known_from_its_word_to_the_end_of_the_line_and_what_is_tracked_until_it_changes(story):
    """By line and moment, of the second story; the last line is padding."""
    known = {name: table[..., 1].tolist() for name, table in story.factors.items()}
    assert known == {
        "line": [[0, 0, 0], [0, 0, 0], [1, 1, 1], [-1, -1, -1]],
        "person": [[-1, 1, 1], [-1, 1, 1], [-1, 1, 1], [-1, -1, -1]],
        "way": [[-1, -1, 1], [-1, -1, 0], [-1, -1, -1], [-1, -1, -1]],
        "ann": [[-1, -1, -1]] * 4,
        "bob": [[-1, -1, 1], [1, 1, 0], [0, 0, 0], [-1, -1, -1]],
        "answer": [[-1, -1, -1], [-1, -1, -1], [-1, 0, 0], [-1, -1, -1]],
    }
    assert story.factors["ann"][..., 0].tolist() == [[-1, -1, 0], [0, 0, 0], [0, 0, 0], [-1, -1, -1]]
    assert story.stated("way").tolist() == [[0, 1], [1, 0]]
    assert story.asked("person").tolist() == [[0], [1]]


def test_what_an_answer_follows_from_is_marked_and_nothing_for_minus_one(story):
    assert story.support.tolist() == [[[True, False]], [[True, True]]]


def test_a_table_may_change_with_another_word_and_start_with_another_number():
    script = Script(Sentences((Form("{who} {how} ."), Form("what ?")), {"who": ("x",), "how": ("y",)}), ((0,), (1,)))
    story = Story(script, ["line", "count"], np.zeros((1, 1)))
    count = story.track(["count"], since=1, start=0)
    count[0] = 5
    story.state(0, {"who": np.array([0])}, {"how": np.array([0])})
    assert story.factors["count"][0, :, 0].tolist() == [0, 5, 5]
