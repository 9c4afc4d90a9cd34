"""The world as a list of examples: fixed ones in epochs, what is refused, and words for a figure's axes."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.worlds import QUESTIONS
from unbraid.worlds.stories import TASKS, Stories


def rows(batch, world):
    return [" ".join(world.words(tokens)).split(" <pad>")[0] for tokens in batch.tokens]


def test_the_world_is_registered():
    assert QUESTIONS["stories"] is Stories


@pytest.mark.parametrize(("layout", "examples"), [("single", 97), ("together", 50), ("single", 1000)])
def test_an_epoch_holds_each_of_the_fixed_examples_once(layout, examples):
    world = Stories(layout=layout, examples=examples, seed=3)
    batches = -(-examples // 16)
    epochs = [[row for n in range(batches) for row in rows(world.batch(e * batches + n, 16), world)] for e in range(3)]
    fixed = Stories(layout=layout, seed=3).batch(0, examples)
    assert all(sorted(epoch) == sorted(rows(fixed, world)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != rows(fixed, world)


def test_the_last_batch_of_an_epoch_is_short_and_the_next_is_whole():
    world = Stories(layout="single", examples=1000)
    sizes = [len(world.batch(position, 64).tokens) for position in range(17)]
    assert sizes == [64] * 15 + [40, 64]


def test_a_batch_larger_than_all_examples_is_all_of_them():
    world = Stories(examples=7)
    assert [len(world.batch(position, 64).tokens) for position in range(3)] == [7, 7, 7]
    assert sorted(rows(world.batch(0, 64), world)) == sorted(rows(world.batch(1, 64), world))


def test_each_row_of_a_fixed_example_is_whole():
    """Answers, support and factors go with their tokens into whatever order."""
    world, fresh = Stories(layout="single", examples=40), Stories(layout="single").batch(0, 40)
    where = {row: number for number, row in enumerate(rows(fresh, world))}
    batch = world.batch(2, 16)
    for number, row in enumerate(rows(batch, world)):
        twin, width = where[row], len(row.split())
        assert torch.equal(batch.answers[number], fresh.answers[twin])
        assert torch.equal(batch.asked[number], fresh.asked[twin])
        assert torch.equal(batch.support[number, :, :width], fresh.support[twin, :, :width])
        for name, value in batch.factors.items():
            assert torch.equal(value[number, :width], fresh.factors[name][twin, :width])


def test_other_splits_are_endless_even_so():
    world, endless = Stories(examples=10), Stories()
    assert rows(world.batch(4, 30, "test"), world) == rows(endless.batch(4, 30, "test"), world)


def test_no_story_is_in_two_splits():
    world = Stories(task="one_fact", rounds=10)
    train, test = (set(rows(world.batch(0, 2000, split), world)) for split in ("train", "test"))
    assert len(train) == len(test) == 2000
    assert not train & test


def test_words_are_those_of_the_tokens():
    world = Stories(layout="single")
    batch = world.batch(0, 2)
    words = world.words(batch.tokens[0])
    assert len(words) == batch.tokens.shape[1]
    assert [world.vocabulary.index(word) for word in words] == batch.tokens[0].tolist()
    assert words[int(batch.asked[0, 0])] == "?"
    assert world.words(torch.tensor([0, 2, 3])) == ["<pad>", "<sep>", "<ssep>"]


def test_types_are_what_models_and_losses_take():
    batch = Stories(task="two_facts").batch(0, 4)
    assert batch.tokens.dtype == batch.asked.dtype == batch.answers.dtype == torch.int64
    assert batch.support.dtype == torch.bool
    assert {value.dtype for value in batch.factors.values()} == {torch.int8}


def test_an_unknown_task_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"task is 'one_fat'; did you mean 'one_fact'\? accepted: one_fact, two_facts"):
        check(Stories, {"task": "one_fat"}, "here")
    with pytest.raises(UserError, match="task is 3; accepted"):
        check(Stories, {"task": 3}, "here")
    with pytest.raises(UserError, match="there is no setting 'layuot'; did you mean 'layout'"):
        check(Stories, {"layuot": "single"}, "here")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"people": 0}, "stories of the task one_fact: people is 0; it should be greater than or equal to 1"),
        ({"people": 9}, "people is 9; it should be less than or equal to 8"),
        ({"places": 1}, "places is 1; it should be greater than or equal to 2"),
        ({"rounds": 26}, "rounds is 26"),
        ({"things": 2}, "stories of the task one_fact: there is no setting 'things'; accepted: people, places, rounds"),
        ({"task": "path", "people": 3}, "task path: there is no setting 'people'"),
        ({"task": "path", "places": 4}, "4 places do not make chains of 3; accepted: a multiple of 3"),
        ({"task": "ratio", "people": 1}, "people is 1"),
        ({"examples": 0}, "examples is 0"),
        ({"layout": "both"}, "layout is 'both'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_sizes_that_cannot_be_are_refused(settings, sentence):
    with pytest.raises(UserError) as refusal:
        check(Stories, settings, "here")
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(("position", "size"), [(-1, 4), (0, 0), (2, -3)])
def test_a_batch_that_cannot_be_is_refused(position, size):
    with pytest.raises(UserError, match="accepted: a position from 0, a size from 1"):
        Stories().batch(position, size)


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        Stories().seed = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_the_defaults_are_short_enough_to_be_learned():
    for task in TASKS:
        world = Stories(task=task)
        assert world.length <= 120
        assert len(world.answers) <= 12
        assert len(world.vocabulary) <= 32
        assert np.unique(world.batch(0, 50).asked).size > 1
