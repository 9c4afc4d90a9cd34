"""Language models on held-out text, against sums by hand, a blind model and counting; and how they write on."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from unbraid.errors import UserError
from unbraid.evaluation.text_models import (
    TextScores,
    attention_on,
    continue_text,
    evaluate_text,
    first_windows,
    held_out_loss,
    loss_units,
    ngram_baselines,
)
from unbraid.models import Models, Transformer, start_models
from unbraid.models.module import _draw
from unbraid.models.training import ModelState, ModelTraining, train_model
from unbraid.worlds import Text

WORLD = Text(context=12, characters=20_000, validation=1000)
SHAPE = Transformer(d_model=8, heads=2, layers=2, d_ff=8)


@pytest.fixture(scope="module")
def models() -> Models:
    return start_models(SHAPE, len(WORLD.vocabulary), WORLD.length, len(WORLD.answers), [0, 1])


def test_the_loss_is_the_mean_surprise_window_by_window(models: Models):
    tokens = torch.from_numpy(WORLD.tokenized.validation.astype(np.int64))
    total = 0.0
    for place in range(len(tokens) - 1):
        start = place - place % 12  # what a window before this one held is not seen
        seen = tokens[None, start : place + 1]
        logits = models.member(1).read(models.member(1).forward(seen), torch.tensor([[seen.shape[1] - 1]]))[0, 0, 0]
        total -= float(logits.double().log_softmax(-1)[tokens[place + 1]])
    assert held_out_loss(models.member(1), WORLD) == pytest.approx(total / (len(tokens) - 1), rel=1e-5)


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_words(models: Models):
    blind = models.with_parameters(
        {name: torch.zeros_like(p) if name.startswith("answer") else p for name, p in models.parameters().items()}
    )
    found = evaluate_text(blind, WORLD, 4)
    words = len(WORLD.vocabulary)
    assert found.values["perplexity"].tolist() == pytest.approx([words, words], rel=1e-5)
    assert found.values["bits_per_character"].tolist() == pytest.approx([math.log2(words)] * 2, rel=1e-5)


def test_bits_of_byte_pairs_are_of_the_characters_they_stand_for(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    world = Text(units="bpe", tokens=300, context=12)
    tokens, characters = len(world.tokenized.validation), world.tokenized.characters
    assert loss_units(2.0, world)["bits_per_character"] == pytest.approx(2.0 * tokens / math.log(2) / characters)


def test_chance_is_counting_tokens_and_the_same_for_all(models: Models):
    found = evaluate_text(models, WORLD, 4)
    unigram, bigram = ngram_baselines(WORLD)["unigram"], ngram_baselines(WORLD)["bigram"]
    assert found.chance["loss"].tolist() == pytest.approx([unigram["loss"]] * 2)
    assert bigram["loss"] < unigram["loss"] < math.log(len(WORLD.vocabulary))
    assert found.values["parameters"].tolist() == [sum(p[0].numel() for p in models.parameters().values())] * 2


def test_company_does_not_matter(models: Models):
    together, alone = evaluate_text(models, WORLD, 4), evaluate_text(models.member(1), WORLD, 4)
    assert together.values["loss"][1] == alone.values["loss"][0]


def test_what_is_told_of_heads_stands_beside(models: Models):
    seen: list[torch.Tensor] = []

    def diagnose(one: Models, tokens: torch.Tensor) -> TextScores:
        seen.append(tokens)
        share = torch.tensor([float(one.seeds[0])])
        return TextScores({"sharpness": share}, {"sharpness": torch.zeros(1)}, {"sharpness": share[:, None, None]})

    found = evaluate_text(models, WORLD, 3, diagnose)
    assert found.values["sharpness"].tolist() == [0, 1]
    assert found.tables["sharpness"].shape == (2, 1, 1)
    assert torch.equal(seen[0], next(WORLD.held_out(3)).tokens)
    assert {"loss", "sharpness"} <= found.chance.keys()


def test_long_windows_are_looked_at_a_few_at_a_time():
    assert len(first_windows(WORLD, 9)) == 9
    assert len(first_windows(Text(context=1024), 9)) == 1


def test_patterns_are_those_of_a_pass(models: Models):
    tokens = first_windows(WORLD, 3)
    patterns = attention_on(models.member(0), tokens)
    assert patterns.shape == (3, 2, 2, 12, 12)
    assert patterns.dtype == np.float32
    np.testing.assert_allclose(patterns.sum(-1), 1, atol=1e-5)
    assert (np.triu(patterns, 1) == 0).all()


def test_the_primer_can_be_learned_better_than_pairs_tell():
    world = Text(context=24, validation=3000)
    state = ModelState.start(Transformer(d_model=32, heads=4, layers=1, d_ff=64), world, [0])
    for _ in train_model(state, world, ModelTraining(steps=350, batch=16, learning_rate=1e-2, decay_steps=150), {}):
        pass
    assert held_out_loss(state.models, world) < ngram_baselines(world)["bigram"]["loss"] - 0.1


SHORT = Text(context=8, characters=20_000, validation=1000)


@pytest.fixture(scope="module")
def writers() -> Models:
    shape = Transformer(d_model=8, heads=2, layers=1, d_ff=8)
    return start_models(shape, len(SHORT.vocabulary), SHORT.length, len(SHORT.answers), [3, 4])


def test_at_temperature_0_it_is_the_likeliest_token_each_time(writers: Models):
    (written, _) = continue_text(writers, SHORT, "the mill and the ", 5, temperature=0.0)
    tokens = SHORT.tokenized.tokenizer.encode("the mill and the ").tolist()
    for _ in range(5):
        seen = torch.tensor([tokens[-8:]])
        logits = writers.member(0).read(writers.member(0).forward(seen), torch.tensor([[seen.shape[1] - 1]]))[0, 0, 0]
        tokens.append(1 + int(logits[1:].argmax()))
    assert written == SHORT.tokenized.tokenizer.decode(tokens[-5:])


def test_continuations_do_not_depend_on_company_but_on_seeds(writers: Models):
    both = continue_text(writers, SHORT, "A", 30, seed=1)
    assert both[1] == continue_text(writers.member(1), SHORT, "A", 30, seed=1)[0]
    assert both[0] != both[1]
    assert both[0] != continue_text(writers.member(0), SHORT, "A", 30, seed=2)[0]
    assert continue_text(writers, SHORT, "A", 0) == ["", ""]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_draws_have_the_shares_of_the_softmax(temperature: float):
    logits = torch.tensor([9.0, 0.0, 1.0, -1.0])  # the first is padding
    draws = (torch.arange(2000) + 0.5) / 2000
    found = Counter(_draw(logits, temperature, float(draw)) for draw in draws)
    shares = (logits[1:] / temperature).softmax(-1)
    assert [found[token] / 2000 for token in (1, 2, 3)] == pytest.approx(shares.tolist(), abs=1e-3)
    assert found[0] == 0


@pytest.mark.parametrize(
    "asked",
    [{"prompt": "", "tokens": 3}, {"prompt": "a", "tokens": -1}, {"prompt": "a", "tokens": 1, "temperature": -1.0}],
)
def test_a_continuation_that_cannot_be_is_refused(writers: Models, asked):
    with pytest.raises(UserError, match="accepted: a prompt of at least a character"):
        continue_text(writers, SHORT, **asked)
