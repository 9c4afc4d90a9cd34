"""What every task promises, over the registry: list a task's sizes here and it is tested against a slow reader."""

import tomllib

import numpy as np
import pytest
import torch

from tests.worlds.stories.reader import READERS
from unbraid.config import check, to_toml
from unbraid.worlds.stories import TASKS, Stories

SIZES = {
    "one_fact": [{}, {"people": 2, "places": 2, "rounds": 2}, {"people": 8, "places": 3, "rounds": 25}],
    "two_facts": [{}, {"people": 1, "places": 2, "things": 1}, {"people": 8, "places": 6, "things": 4, "rounds": 9}],
    "counting": [{}, {"people": 2, "places": 1, "rounds": 2}, {"people": 8, "places": 6, "rounds": 12}],
    "ratio": [{}, {"people": 2, "rounds": 2}, {"people": 7, "rounds": 3}, {"people": 8, "rounds": 12}],
    "coreference": [{}, {"people": 2, "places": 2, "rounds": 2}, {"people": 7, "places": 4, "rounds": 9}],
    "path": [{}, {"places": 3, "rounds": 1}, {"rounds": 8}],
}
CASES = [
    {"task": task, "layout": layout, **sizes}
    for task, several in SIZES.items()
    for sizes in several
    for layout in ("together", "single")
]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case.values())))
def world(request):
    return Stories(**request.param)


def said(meanings, factors, t):
    """What a batch says at a token, in words."""
    return {name: meanings[name][value[t]] for name, value in factors.items() if value[t] >= 0}


def known(factors):
    return {name: value for name, value in factors.items() if value is not None}


def same(a, b):
    return (
        torch.equal(a.tokens, b.tokens)
        and torch.equal(a.asked, b.asked)
        and torch.equal(a.answers, b.answers)
        and torch.equal(a.support, b.support)
        and all(torch.equal(a.factors[name], b.factors[name]) for name in a.factors | b.factors)
    )


def first(batch, count):
    """The first of a batch, without the padding that only the others need."""
    width = int(batch.mask[:count].sum(1).max())
    factors = {name: value[:count, :width] for name, value in batch.factors.items()}
    parts = batch.tokens[:count, :width], batch.asked[:count], batch.answers[:count], batch.support[:count, :, :width]
    return type(batch)(*parts, factors)


def test_every_registered_task_has_sizes_and_a_reader():
    assert set(SIZES) == set(READERS) == set(TASKS)


def test_its_settings_survive_toml(world):
    assert check(Stories, tomllib.loads(to_toml(world.to_dict())), "here") == world


def test_a_slow_reader_of_the_text_agrees_on_everything(world):
    """Answers, support and every factor at every token; the reader never sees a word ahead of the one it is at."""
    rows = 40 if world.rules.model_fields_set else 200
    batch = world.batch(1, rows, "reading")
    cut, meanings = world.layout == "single" and world.length == 180, world.factors
    for row in range(rows):
        words = world.words(batch.tokens[row])
        if cut and batch.mask[row].all():
            continue  # its beginning is not there to be read: see test_telling.py
        read = READERS[world.task]().read(words)
        assert read.asked == batch.asked[row].tolist()
        assert read.answers == [world.answers[answer] for answer in batch.answers[row]]
        assert read.support == [set(marks.nonzero()[:, 0].tolist()) for marks in batch.support[row]]
        factors = {name: value[row].tolist() for name, value in batch.factors.items()}
        told = [said(meanings, factors, t) for t in range(len(words))]
        assert [known(now) for now in read.factors] == told[: len(read.factors)]
        assert not any(told[len(read.factors) :])


def test_support_comes_before_its_question_and_is_never_empty(world):
    batch = world.batch(0, 200)
    places = torch.arange(batch.tokens.shape[1])
    assert batch.support.any(2).all() or world.length == 180
    assert not (batch.support & (places >= batch.asked[..., None])).any()
    assert not (batch.support & ~batch.mask[:, None]).any()


def test_every_question_is_asked_at_a_question_mark(world):
    batch = world.batch(0, 200)
    marks = batch.tokens == world.vocabulary.index("?")
    assert torch.equal(marks.nonzero()[:, 1].reshape(batch.asked.shape), batch.asked)


def test_lengths_and_values_are_as_announced(world):
    batch = world.batch(0, 2000)
    assert batch.tokens.shape[1] == batch.mask.sum(1).max() <= world.length
    assert set(batch.factors) == set(world.factors)
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < len(world.vocabulary)
    assert world.vocabulary[:4] == ("<pad>", "<unk>", "<sep>", "<ssep>")
    for name, value in batch.factors.items():
        assert value.min() >= -1
        assert value.max() < len(world.factors[name])
        assert value.shape == batch.tokens.shape
        assert (value[~batch.mask] == -1).all()


def test_a_batch_can_be_made_again_whatever_was_drawn_before(world):
    fresh = world.batch(5, 33)
    again = type(world)(**world.to_dict())
    for position in range(5):
        again.batch(position, 33)
    assert same(again.batch(5, 33), fresh)
    assert same(world.batch(5, 33, "train"), fresh)


def test_a_split_is_one_list_however_it_is_cut(world):
    whole = world.batch(0, 300, "test")
    assert same(first(whole, 20), world.batch(0, 20, "test"))
    tail = world.batch(14, 20, "test")
    assert torch.equal(whole.asked[280:], tail.asked)
    assert torch.equal(whole.answers[280:], tail.answers)
    assert torch.equal(whole.tokens[280:, : tail.tokens.shape[1]], tail.tokens)


def test_another_position_split_or_seed_is_another_batch(world):
    base, other = world.batch(3, 33), type(world)(**{**world.to_dict(), "seed": world.seed + 1})
    for batch in (world.batch(4, 33), world.batch(3, 33, "test"), other.batch(3, 33)):
        assert not same(base, batch)


def test_shortcuts_are_shares_and_chance_is_the_best_that_does_not_look(world):
    scores = world.shortcuts(500)
    assert all(0 <= score <= 1 for score in scores.values())
    blind = [
        score
        for name, score in scores.items()
        if not name.startswith("asked: ") and name not in ("chance", "without the question")
    ]
    assert scores["chance"] == max(blind)
    assert scores["chance"] < scores.get("without the question", 1) + 0.05
    assert type(world)(**{**world.to_dict(), "layout": "together"}).shortcuts(500) == scores


def test_every_answer_and_every_word_occurs():
    for task in TASKS:
        world = Stories(task=task)
        batch = world.batch(0, 4000)
        assert set(np.unique(batch.answers)) == set(range(len(world.answers)))
        assert set(np.unique(batch.tokens)) - {0} == set(range(4, len(world.vocabulary)))
        assert all(
            set(np.unique(batch.factors[name])) >= set(range(len(world.factors[name]))) for name in world.factors
        )
