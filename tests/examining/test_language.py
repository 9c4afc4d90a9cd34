"""Language models predict all that was kept: against sums by hand, a model that knows nothing, and counting."""

import math

import numpy as np
import pytest
import torch

from unbraid.examining.language import Predicted, counted, first_windows, loss_of, measures, predict, watch
from unbraid.models import Models, Transformer, start_models
from unbraid.training.teaching import Pupils, Teaching, teach
from unbraid.worlds import Text

WORLD = Text(context=12, characters=20_000, validation=1000)
SHAPE = Transformer(d_model=8, heads=2, layers=2, d_ff=8)


@pytest.fixture(scope="module")
def models() -> Models:
    return start_models(SHAPE, len(WORLD.vocabulary), WORLD.length, len(WORLD.answers), [0, 1])


def test_the_loss_is_the_mean_surprise_window_by_window(models: Models):
    tokens = torch.from_numpy(WORLD.made.validation.astype(np.int64))
    total = 0.0
    for place in range(len(tokens) - 1):
        start = place - place % 12  # what a window before this one held is not seen
        seen = tokens[None, start : place + 1]
        logits = models.member(1).read(models.member(1).forward(seen), torch.tensor([[seen.shape[1] - 1]]))[0, 0, 0]
        total -= float(logits.double().log_softmax(-1)[tokens[place + 1]])
    assert loss_of(models.member(1), WORLD) == pytest.approx(total / (len(tokens) - 1), rel=1e-5)


def test_a_model_that_knows_nothing_is_as_perplexed_as_there_are_words(models: Models):
    blind = models.with_parameters(
        {name: torch.zeros_like(p) if name.startswith("answer") else p for name, p in models.parameters().items()}
    )
    found = predict(blind, WORLD, 4)
    words = len(WORLD.vocabulary)
    assert found.values["perplexity"].tolist() == pytest.approx([words, words], rel=1e-5)
    assert found.values["bits_per_character"].tolist() == pytest.approx([math.log2(words)] * 2, rel=1e-5)


def test_bits_of_byte_pairs_are_of_the_characters_they_stand_for(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    world = Text(units="bpe", tokens=300, context=12)
    tokens, characters = len(world.made.validation), world.made.characters
    assert measures(2.0, world)["bits_per_character"] == pytest.approx(2.0 * tokens / math.log(2) / characters)


def test_chance_is_counting_tokens_and_the_same_for_all(models: Models):
    found = predict(models, WORLD, 4)
    unigram, bigram = counted(WORLD)["unigram"], counted(WORLD)["bigram"]
    assert found.chance["loss"].tolist() == pytest.approx([unigram["loss"]] * 2)
    assert bigram["loss"] < unigram["loss"] < math.log(len(WORLD.vocabulary))
    assert found.values["parameters"].tolist() == [sum(p[0].numel() for p in models.parameters().values())] * 2


def test_company_does_not_matter(models: Models):
    together, alone = predict(models, WORLD, 4), predict(models.member(1), WORLD, 4)
    assert together.values["loss"][1] == alone.values["loss"][0]


def test_what_is_told_of_heads_stands_beside(models: Models):
    seen: list[torch.Tensor] = []

    def diagnose(one: Models, tokens: torch.Tensor) -> Predicted:
        seen.append(tokens)
        share = torch.tensor([float(one.seeds[0])])
        return Predicted({"sharpness": share}, {"sharpness": torch.zeros(1)}, {"sharpness": share[:, None, None]})

    found = predict(models, WORLD, 3, diagnose)
    assert found.values["sharpness"].tolist() == [0, 1]
    assert found.tables["sharpness"].shape == (2, 1, 1)
    assert torch.equal(seen[0], next(WORLD.held_out(3)).tokens)
    assert {"loss", "sharpness"} <= found.chance.keys()


def test_long_windows_are_looked_at_a_few_at_a_time():
    assert len(first_windows(WORLD, 9)) == 9
    assert len(first_windows(Text(context=1024), 9)) == 1


def test_patterns_are_those_of_a_pass(models: Models):
    tokens = first_windows(WORLD, 3)
    patterns = watch(models.member(0), tokens)
    assert patterns.shape == (3, 2, 2, 12, 12)
    assert patterns.dtype == np.float32
    np.testing.assert_allclose(patterns.sum(-1), 1, atol=1e-5)
    assert (np.triu(patterns, 1) == 0).all()


def test_the_primer_can_be_learned_better_than_pairs_tell():
    world = Text(context=24, validation=3000)
    pupils = Pupils.start(Transformer(d_model=32, heads=4, layers=1, d_ff=64), world, [0])
    for _ in teach(pupils, world, Teaching(steps=350, batch=16, learning_rate=1e-2, decay_steps=150), {}):
        pass
    assert loss_of(pupils.models, world) < counted(world)["bigram"]["loss"] - 0.1
