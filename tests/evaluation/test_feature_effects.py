"""Effects on the output: the lens against products written out and the model itself, ablation against plain loops."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.activations.conftest import small, tokenizer
from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.normalization import Normalization
from unbraid.activations.sites import find_site, replace_at_site
from unbraid.dictionaries import Dictionary, Stack
from unbraid.evaluation.causal import EditableModel
from unbraid.evaluation.feature_effects import (
    AnswerEffects,
    LogitLens,
    OutputEffects,
    lens_of_huggingface,
    lens_of_model,
)
from unbraid.pipeline.capture_model import BATCH, SPLIT, captured_stories

SCALE = 1.7


@pytest.fixture
def model(make):
    """With a final norm that is not the identity."""
    made = make()
    torch.manual_seed(0)
    made.weights["final_norm.weight"] += 0.5 * torch.randn(1, 8)
    made.weights["final_norm.bias"] += torch.randn(1, 8)
    return made


def by_hand(model, direction):
    """W_U (γ ⊙ (d − mean d)), one answer at a time."""
    centred = (direction - direction.mean()) * model.weights["final_norm.weight"][0]
    return torch.stack([row @ centred for row in model.weights["answer.weight"][0]]) * SCALE


def test_the_lens_names_what_is_raised_and_lowered_most():
    lens = LogitLens(torch.tensor([[1.0, 0], [2, 0], [-3, 0], [0.5, 0], [-1, 1], [4, 0], [0, 0]]), True)
    own = lens.of(torch.tensor([[1.0, 0.0], [0.0, -2.0]]))
    assert own["answer"][0].tolist() == [5, 1, 0, 2, 4, 6]
    assert own["answer_logit"][0].tolist() == [4, 2, 1, -3, -1, 0]
    assert own["answer_logit"][1, 3] == -2
    few = LogitLens(torch.tensor([[1.0], [2.0], [3.0]]), True).of(torch.tensor([[1.0]]))
    assert few["answer"].tolist() == [[2, 1, -1, 0, -1, -1]]


@pytest.mark.parametrize(
    "hook", ["hook_resid_pre", "hook_resid_mid", "hook_resid_post", "hook_attn_out", "hook_mlp_out"]
)
def test_the_lens_of_the_stream(model, hook):
    direction = torch.randn(8)
    for layer in (0, 1):
        lens = lens_of_model(model, f"blocks.{layer}.{hook}", SCALE)
        assert lens is not None
        torch.testing.assert_close(lens.weight @ direction, by_hand(model, direction))
        assert lens.exact == (layer == 1 and hook in ("hook_resid_post", "hook_mlp_out"))


def test_the_lens_of_heads_goes_through_their_output_matrix(model):
    direction = torch.randn(8)
    lens = lens_of_model(model, "blocks.0.attn.hook_z", SCALE)
    assert lens is not None
    written = model.weights["blocks.0.attn.out"][0] @ direction
    torch.testing.assert_close(lens.weight @ direction, by_hand(model, written))
    assert lens_of_model(model, "blocks.0.attn.hook_q", SCALE) is None


def test_behind_the_last_block_the_model_itself_says_so(model, world):
    """With a feature alone in the stream, the logits are those of the lens over the size of the stream."""
    batch, direction = world.batch(0, 2), torch.randn(8)
    lens = lens_of_model(model, "blocks.1.hook_resid_post", 1.0)

    def logits(row):
        output = model.forward(batch.tokens, edit={"blocks.1.hook_resid_post": lambda x: row.expand_as(x)})
        return model.read(output, batch.asked)[0, 0, 0]

    assert lens is not None
    difference = logits(1e3 * direction) - logits(torch.zeros(8))
    torch.testing.assert_close(difference, lens.weight @ direction / direction.std(correction=0), rtol=1e-4, atol=1e-5)


def hugging_face(kind: str) -> Any:
    return HuggingFaceModel(small(kind).eval(), tokenizer(), kind)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_the_lens_of_language_models(kind):
    torch.manual_seed(1)
    hugging = hugging_face(kind)
    inner = hugging.model.model if kind == "llama" else hugging.model.transformer
    norm = inner.norm if kind == "llama" else inner.ln_f
    norm.weight.data += 0.5 * torch.randn(12)
    direction, words = torch.randn(12), 20
    centred = direction if kind == "llama" else direction - direction.mean()
    expected = SCALE * hugging.model.lm_head.weight[:words] @ (norm.weight * centred)
    for name, exact in (
        ("blocks.2.hook_resid_post", True),
        ("blocks.0.hook_resid_post", False),
        ("blocks.1.hook_mlp_out", False),
    ):
        lens = lens_of_huggingface(hugging, find_site(hugging, name), SCALE, words)
        assert lens is not None
        assert lens.exact == exact
        torch.testing.assert_close(lens.weight @ direction, expected, rtol=1e-4, atol=1e-5)
    heads = lens_of_huggingface(hugging, find_site(hugging, "blocks.0.attn.hook_z"), SCALE, words)
    block = (
        inner.layers[0].self_attn.o_proj.weight @ direction
        if kind == "llama"
        else direction @ inner.h[0].attn.c_proj.weight
    )
    centred = block if kind == "llama" else block - block.mean()
    assert heads is not None
    expected = SCALE * hugging.model.lm_head.weight @ (norm.weight * centred)
    torch.testing.assert_close(heads.weight @ direction, expected, rtol=1e-4, atol=1e-5)


def test_a_language_model_with_a_feature_alone_in_its_stream():
    hugging = hugging_face("gpt2")
    site, direction = find_site(hugging, "blocks.2.hook_resid_post"), torch.randn(12)
    lens = lens_of_huggingface(hugging, site, 1.0, 20)

    def logits(row):
        with torch.no_grad(), replace_at_site(site, lambda x: row.expand_as(x)):
            return hugging.model(input_ids=torch.tensor([[1, 5, 6]])).logits[0, -1]

    assert lens is not None
    difference = logits(1e3 * direction) - logits(torch.zeros(12))
    torch.testing.assert_close(difference, lens.weight @ direction / direction.std(correction=0), rtol=1e-4, atol=1e-5)


def test_a_model_without_next_tokens_or_another_site_has_no_lens():
    bert = hugging_face("bert")
    assert lens_of_huggingface(bert, find_site(bert, "blocks.0.hook_resid_post"), 1.0, 20) is None
    gpt2 = hugging_face("gpt2")
    assert lens_of_huggingface(gpt2, find_site(gpt2, "transformer.h.0.mlp.c_fc"), 1.0, 20) is None


@pytest.mark.parametrize("site", ["blocks.0.hook_resid_post", "blocks.1.attn.hook_z"])
def test_ablation_against_a_loop_over_features_and_stories(model, world, site):
    numbers = np.array([3, BATCH + 1, 2])
    batch = captured_stories(world, numbers)
    normalization = Normalization(torch.randn(8), SCALE)
    stack = Stack.start(Dictionary(d_sae=12), 8, [0])
    rows = batch.mask.nonzero()
    effects = AnswerEffects(EditableModel(model, site, normalization), batch, rows[:, 0].numpy())
    strongest = np.full((12, 3), -1)
    strongest[0] = [0, 1, len(rows) - 1]  # two stories, one of them twice
    strongest[1:, 0] = np.arange(11) * (len(rows) - 1) // 10
    strongest[11] = -1
    own = effects.of(stack, strongest)
    for feature in range(12):
        changes = []
        for story in sorted({int(rows[row, 0]) for row in strongest[feature] if row >= 0}):
            changes += ablated(model, site, normalization, stack, feature, batch, story)
        assert own["effect_questions"][feature] == len(changes)
        if changes:
            assert own["effect"][feature] == pytest.approx(np.mean(changes), abs=1e-5)
        else:
            assert np.isnan(own["effect"][feature])
    assert np.nanmax(np.abs(own["effect"])) > 1e-3


def ablated(model, site, normalization, stack, feature, batch, story):
    """By hand, without padding: every question after the feature first fires, read with it and without it."""
    tokens = batch.tokens[story][batch.mask[story]][None]
    heads = site.endswith("hook_z")
    recorded = model.forward(tokens, [site]).recorded[site][0, 0]
    x = recorded.transpose(0, 1).flatten(1) if heads else recorded
    z = stack.encode((x - normalization.mean) / normalization.scale).to_dense()[0][:, feature]
    change = z[:, None] * stack.decoder[0, feature] * normalization.scale
    if heads:
        change = change.unflatten(1, (2, 4)).transpose(0, 1)
    answers = []
    for edit in ({}, {site: lambda value: value - change}):
        logits = model.read(model.forward(tokens, edit=edit), batch.asked[story][None])[0, 0]
        answers.append(logits.log_softmax(-1)[range(len(logits)), batch.answers[story]])
    first = int(z.nonzero()[0, 0]) if z.any() else 10**6
    return [float(b - a) for a, b, asked in zip(*answers, batch.asked[story], strict=True) if asked >= first]


def test_captured_stories_are_those_of_the_capture(world):
    numbers = np.array([BATCH + 5, 0, 7])
    batch = captured_stories(world, numbers)
    for place, number in enumerate(numbers.tolist()):
        drawn = world.batch(number // BATCH, BATCH, split=SPLIT)
        tokens = drawn.tokens[number % BATCH]
        assert batch.tokens[place][batch.mask[place]].tolist() == tokens[tokens != 0].tolist()
        assert batch.answers[place].tolist() == drawn.answers[number % BATCH].tolist()


def test_effects_take_few_bytes(model, world):
    batch = captured_stories(world, np.array([0]))
    editable = EditableModel(model, "blocks.0.hook_resid_post", Normalization(torch.zeros(8), 1.0))
    answers = AnswerEffects(editable, batch, np.zeros(20, dtype=np.int64))
    effects = OutputEffects(lens_of_model(model, editable.site, 1.0), answers, world.answers)
    own = effects.of(Stack.start(Dictionary(d_sae=10), 8, [0]), np.zeros((10, 8), dtype=np.int64))
    assert set(own) == {"answer", "answer_logit", "effect", "effect_questions"}
    assert sum(part.nbytes for part in own.values()) / 10 < 60
