"""Pairs of stories that differ in one word: answers by a solver of their own, and factors that differ from it on."""

import pytest
import torch

from tests.worlds.stories.reader import READERS
from unbraid.worlds.stories import TASKS, Stories

over_tasks = pytest.mark.parametrize("task", TASKS)
over_layouts = pytest.mark.parametrize("layout", ["together", "single"])


@over_tasks
@over_layouts
def test_a_slow_reader_of_either_story_agrees_on_answers_and_factors(task, layout):
    world = Stories.model_validate({"task": task, "rounds": 2, "layout": layout})
    pairs = world.minimal_pairs(20, "here").select(slice(60))
    for batch in (pairs.base, pairs.other):
        for row, tokens in enumerate(batch.tokens):
            reader = READERS[task]()
            reader.read(world.words(tokens))
            assert reader.answers == [world.answers[answer] for answer in batch.answers[row]]
            assert reader.asked == batch.asked[row].tolist()
            for name, values in world.factors.items():
                expected = [known.get(name) for known in reader.factors]
                known = [values[value] if value >= 0 else None for value in batch.factors[name][row, : len(expected)]]
                assert known == expected, name


@over_tasks
@over_layouts
def test_pairs_differ_in_one_word_and_in_factors_from_it_on(task, layout):
    world = Stories.model_validate({"task": task, "rounds": 2, "layout": layout})
    pairs = world.minimal_pairs(60, "here")
    differ = pairs.base.tokens != pairs.other.tokens
    assert len(differ) > 20
    assert (differ.sum(1) == 1).all()
    assert torch.equal(pairs.base.asked, pairs.other.asked)
    factors = torch.stack([pairs.differs(name) for name in world.factors]).any(0)
    assert factors.any(1).all()
    first_word = differ.int().argmax(1)
    assert (factors.int().argmax(1) >= first_word).all()
    answers = pairs.base.answers != pairs.other.answers
    assert answers.any()
    assert not answers.all()
    assert (pairs.base.asked[answers] >= first_word[:, None].expand_as(answers)[answers]).all()


@over_tasks
def test_the_first_of_a_pair_is_a_story_of_the_split_and_the_same_again(task):
    world = Stories.model_validate({"task": task, "rounds": 2})
    pairs, again = world.minimal_pairs(30, "here"), world.minimal_pairs(30, "here")
    assert torch.equal(pairs.other.tokens, again.other.tokens)
    batch = world.batch(0, 30, "here")
    stories = {tuple(row[row != 0].tolist()) for row in batch.tokens}
    assert {tuple(row[row != 0].tolist()) for row in pairs.base.tokens} <= stories
    elsewhere = world.minimal_pairs(30, "there")
    assert {tuple(row[row != 0].tolist()) for row in elsewhere.base.tokens} != stories
