"""Long sequences of one question keep their last 180 tokens, and what goes with them."""

import pytest
import torch

from unbraid.worlds.stories import Stories
from unbraid.worlds.stories import batch as batches

LONG = {"rounds": 25, "people": 8}


@pytest.fixture
def whole(monkeypatch):
    """The same examples as if there were no limit."""
    kept = Stories(layout="single", **LONG).batch(0, 100)
    monkeypatch.setattr(batches, "LIMIT", 10_000)
    return Stories(layout="single", **LONG).batch(0, 100), kept


def test_the_last_180_tokens_are_kept_with_all_that_belongs_to_them(whole):
    long, kept = whole
    assert kept.tokens.shape[1] == 180 < long.tokens.shape[1]
    for row, total in enumerate(long.mask.sum(1).tolist()):
        over = max(total - 180, 0)
        width = total - over
        assert torch.equal(kept.tokens[row, :width], long.tokens[row, over:total])
        assert not kept.mask[row, width:].any()
        assert kept.asked[row] == long.asked[row] - over == width - 1
        assert torch.equal(kept.support[row, :, :width], long.support[row, :, over:total])
        for name, value in kept.factors.items():
            assert torch.equal(value[row, :width], long.factors[name][row, over:total])
            assert (value[row, width:] == -1).all()
    assert torch.equal(kept.answers, long.answers)


def test_some_facts_are_lost_and_some_are_not(whole):
    """With eight people the last statement about one may be more than 180 tokens ago."""
    supported = whole[1].support.any(2)
    assert supported.any()
    assert not supported.all()
    assert whole[0].support.any(2).all()


def test_stories_with_all_their_questions_are_never_cut():
    world = Stories(**LONG)
    assert world.length == 25 * 18 > 180
    assert world.batch(0, 20).tokens.shape[1] > 180


def test_separators_do_not_support():
    world = Stories(layout="single")
    batch = world.batch(0, 200)
    separators = (batch.tokens == 2) | (batch.tokens == 3)
    assert separators.any(1).all()
    assert not (batch.support & separators[:, None]).any()


def test_padding_is_zero_and_masked():
    batch = Stories(layout="single").batch(0, 50)
    lengths = batch.asked[:, 0] + 1
    expected = torch.arange(batch.tokens.shape[1]) < lengths[:, None]
    assert torch.equal(batch.mask, expected)
    assert (batch.tokens[~expected] == 0).all()
