"""Models go on from a text by the pass they are scored with; draws are their own and can be made again."""

from collections import Counter

import pytest
import torch

from unbraid.errors import Refusal
from unbraid.examining.continuing import _drawn, continue_text
from unbraid.models import Models, Transformer, start_models
from unbraid.worlds import Text

WORLD = Text(context=8, characters=20_000, validation=1000)


@pytest.fixture(scope="module")
def models() -> Models:
    shape = Transformer(d_model=8, heads=2, layers=1, d_ff=8)
    return start_models(shape, len(WORLD.vocabulary), WORLD.length, len(WORLD.answers), [3, 4])


def test_at_temperature_0_it_is_the_likeliest_token_each_time(models: Models):
    (written, _) = continue_text(models, WORLD, "the mill and the ", 5, temperature=0.0)
    tokens = WORLD.made.units.encode("the mill and the ").tolist()
    for _ in range(5):
        seen = torch.tensor([tokens[-8:]])
        logits = models.member(0).read(models.member(0).forward(seen), torch.tensor([[seen.shape[1] - 1]]))[0, 0, 0]
        tokens.append(1 + int(logits[1:].argmax()))
    assert written == WORLD.made.units.decode(tokens[-5:])


def test_company_does_not_matter_and_seeds_do(models: Models):
    both = continue_text(models, WORLD, "A", 30, seed=1)
    assert both[1] == continue_text(models.member(1), WORLD, "A", 30, seed=1)[0]
    assert both[0] != both[1]
    assert both[0] != continue_text(models.member(0), WORLD, "A", 30, seed=2)[0]
    assert continue_text(models, WORLD, "A", 0) == ["", ""]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_draws_have_the_shares_of_the_softmax(temperature: float):
    logits = torch.tensor([9.0, 0.0, 1.0, -1.0])  # the first is padding
    draws = (torch.arange(2000) + 0.5) / 2000
    found = Counter(_drawn(logits, temperature, float(draw)) for draw in draws)
    shares = (logits[1:] / temperature).softmax(-1)
    assert [found[token] / 2000 for token in (1, 2, 3)] == pytest.approx(shares.tolist(), abs=1e-3)
    assert found[0] == 0


@pytest.mark.parametrize(
    "asked",
    [{"prompt": "", "tokens": 3}, {"prompt": "a", "tokens": -1}, {"prompt": "a", "tokens": 1, "temperature": -1.0}],
)
def test_what_cannot_be_is_refused(models: Models, asked):
    with pytest.raises(Refusal, match="accepted: a prompt of at least a character"):
        continue_text(models, WORLD, **asked)
