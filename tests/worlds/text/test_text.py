"""The world of text: windows can be drawn again, everything kept is predicted once, bad settings are refused."""

import tomllib
from pathlib import Path

import pytest
import torch

from unbraid.config import check, to_toml
from unbraid.errors import UserError
from unbraid.models.training import QABatch, SequenceTask
from unbraid.worlds import QUESTIONS, Text

WORLD = Text(context=16)


def test_it_is_registered_and_can_be_taught_on():
    assert QUESTIONS["text"] is Text
    assert isinstance(WORLD, SequenceTask)
    assert isinstance(WORLD.batch(0, 2), QABatch)
    assert check(Text, tomllib.loads(to_toml(WORLD.to_dict())), "here") == WORLD


def test_windows_are_of_the_training_part_and_ask_for_the_next_token():
    batch = WORLD.batch(7, 200)
    assert batch.tokens.shape == batch.answers.shape == batch.asked.shape == (200, 16)
    assert torch.equal(batch.answers[:, :-1], batch.tokens[:, 1:])
    assert torch.equal(batch.asked[3], torch.arange(16))
    text = "".join(WORLD.words(torch.from_numpy(WORLD.tokenized.training)))
    for row, last in zip(batch.tokens, batch.answers[:, -1:], strict=True):
        assert "".join(WORLD.words(torch.cat([row, last]))) in text
    assert batch.tokens.min() >= 1


def test_windows_follow_from_seed_and_position():
    assert torch.equal(WORLD.batch(3, 9).tokens, Text(context=16).batch(3, 9).tokens)
    assert not torch.equal(WORLD.batch(3, 9).tokens, WORLD.batch(4, 9).tokens)
    assert not torch.equal(WORLD.batch(3, 9).tokens, Text(context=16, seed=1).batch(3, 9).tokens)


def test_a_window_may_begin_anywhere_even_at_the_very_end(tmp_path: Path):
    (tmp_path / "train.txt").write_text("ab" * 10)
    (tmp_path / "valid.txt").write_text("ab" * 10)
    world = Text(text=str(tmp_path), context=19)
    starts = {int(one) for one in world.batch(0, 50).tokens[:, 0]}
    assert starts == {2}  # 20 tokens hold one window of 19 and the next
    assert {int(one) for one in Text(text=str(tmp_path), context=18).batch(0, 50).tokens[:, 0]} == {2, 3}


@pytest.mark.parametrize(("context", "size"), [(16, 5), (7, 1000), (600, 4)])
def test_every_token_but_the_first_is_predicted_once(context: int, size: int):
    world = Text(context=context, validation=1001)
    batches = list(world.held_out(size))
    answers = torch.cat([batch.answers.flatten() for batch in batches])
    assert answers.tolist() == world.tokenized.validation[1:].tolist()
    assert all(torch.equal(batch.tokens[:, 1:], batch.answers[:, :-1]) for batch in batches)
    assert all(len(batch.tokens) <= size for batch in batches)


def test_byte_pairs_have_fewer_tokens_for_as_many_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    world = Text(units="bpe", tokens=400, context=16)
    assert len(world.vocabulary) == 401
    assert world.characters_per_token == world.tokenized.characters / len(world.tokenized.validation) > 2
    assert WORLD.characters_per_token == 1
    assert world.tokenized.characters == len(WORLD.tokenized.validation)


REFUSED = {
    "a context longer than the text": ({"context": 20_000}, "the validation part of the text 'primer' has 9... tokens"),
    "a training part too short": ({"characters": 60}, "the training part of the text 'primer' has 60 tokens"),
    "units that are none": ({"units": "words"}, "units is 'words'; it should be 'characters' or 'bpe'"),
    "fewer pairs than bytes": ({"units": "bpe", "tokens": 256}, "tokens is 256; it should be greater than 256"),
    "pairs of characters": ({"tokens": 300}, "tokens is 300, and characters are counted"),
    "no such text": ({"text": "nowhere.txt"}, "there is no text 'nowhere.txt'"),
}


@pytest.mark.parametrize(("settings", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused(settings, sentence: str):
    with pytest.raises(UserError, match=sentence):
        check(Text, settings, "here")
