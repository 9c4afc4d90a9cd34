"""Stories are drawn from what a model predicts, and end where it ends them."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from materials.told import draw, tell

WORDS, BEGIN, END = 8, 1, 2


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(
        LlamaConfig(**sizes, vocab_size=WORDS, max_position_embeddings=12, initializer_range=1.0)
    ).eval()


def test_tokens_are_drawn_by_their_probability():
    shares = torch.tensor([0.5, 0.25, 0.0, 0.25])
    drawn = draw(shares.log().expand(20_000, 4), torch.Generator().manual_seed(0))
    found = torch.bincount(drawn[:, 0], minlength=4) / 20_000
    assert found[2] == 0
    assert torch.allclose(found, shares, atol=4 * (0.25 / 20_000) ** 0.5)


def test_stories_follow_the_model_as_it_runs_without_a_cache(model):
    """Of stories that begin alike, the third token is as often which as the whole model, run at once, predicts."""
    stories = tell(model, 6000, 0)
    first, second = torch.mode(torch.tensor([story[:2] for story in stories if len(story) > 1]), 0).values.tolist()
    third = [story[2:3] for story in stories if story[:2] == [first, second]]
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([[BEGIN, first, second]])).logits[0, -1].softmax(-1)
    assert len(third) > 100
    for word in range(WORDS):
        if word not in (BEGIN, END):
            assert sum(one == [word] for one in third) / len(third) == pytest.approx(
                float(expected[word]), abs=4 * (0.25 / len(third)) ** 0.5
            )


def test_a_story_has_no_token_that_begins_or_ends_one_and_fits_the_context(model):
    stories = tell(model, 200, 1)
    assert all(1 <= len(story) <= 11 for story in stories)
    assert not {BEGIN, END} & {token for story in stories for token in story}
    assert stories == tell(model, 200, 1)
    assert stories != tell(model, 200, 2)
