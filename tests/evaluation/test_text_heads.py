"""Heads of any model on a text: patterns as transformers has them, measures as loops by hand and our own evaluation."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.activations.conftest import tokenizer
from tests.models.shapes import ALL
from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import find_site, read_site
from unbraid.dictionaries import Dictionary, Stack
from unbraid.errors import UserError
from unbraid.evaluation.heads import attention_tables, held_out_batches
from unbraid.evaluation.splice import splice
from unbraid.evaluation.text_heads import Heads, _project, heads
from unbraid.evaluation.uniformity import diagnose
from unbraid.metrics.catalog import METRICS
from unbraid.models import Gauge, Models, Routed, Transformer, start_models
from unbraid.models.constraints import CONSTRAINTS, costs, recorded_for
from unbraid.worlds import Text
from unbraid.worlds.stories import Stories

IDS = torch.tensor([[1, 4, 5, 6, 2], [1, 7, 8, 9, 10], [3, 3, 9, 4, 5], [1, 11, 2, 6, 4]])
TEXT = "the cat sat on the mat and then the big dog ran\n" * 3
BEYOND_THE_CATALOG = {"activity", "effective_keys"}


def made(kind: str) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "initializer_range": 0.5}
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(n_embd=12, n_layer=2, n_head=3, n_positions=32, bos_token_id=None, eos_token_id=None, **sizes)
        ).eval()
    sizes |= {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "max_position_embeddings": 32}
    if kind == "llama":  # with grouped keys, and heads wider than the residual stream has room for
        return LlamaForCausalLM(
            LlamaConfig(num_attention_heads=4, num_key_value_heads=2, head_dim=6, bos_token_id=None, **sizes)
        ).eval()
    return BertModel(BertConfig(num_attention_heads=3, **sizes)).eval()


KINDS = ("gpt2", "llama", "bert")


@pytest.fixture(params=KINDS)
def model(request):
    return made(request.param)


def value(seen: Heads, metric: str, layer: int = 0, head: int | None = None) -> float:
    frame = seen.frame()
    rows = frame[(frame["metric"] == metric) & (frame["layer"] == layer)]
    rows = rows[rows["head"].isna() if head is None else rows["head"] == head]
    return float(rows["value"].item())


def test_patterns_are_those_of_transformers_in_eager_attention(model):
    before = model.config._attn_implementation
    assert before == "sdpa"
    seen = heads(model, IDS)
    assert model.config._attn_implementation == before
    model.set_attn_implementation("eager")
    truth = model(input_ids=IDS, output_attentions=True).attentions
    torch.testing.assert_close(seen.pattern, torch.stack(truth))
    assert seen.mask.all()
    assert torch.equal(seen.tokens, IDS)


def test_what_heads_write_adds_up_to_what_attention_adds_without_its_bias(model):
    """And what one writes is what attention adds less what it adds without that head."""
    seen = heads(model, IDS)
    loaded = HuggingFaceModel(model, None, "tiny")  # pyright: ignore[reportArgumentType]
    for layer in range(2):
        site = find_site(loaded, f"blocks.{layer}.attn.hook_z")
        z = read_site(loaded, site, IDS)
        together = seen.z[layer].transpose(1, 2).flatten(2)
        torch.testing.assert_close(together, z)
        without = together.clone()
        width = seen.z.shape[-1]
        without[..., width : 2 * width] = 0
        with torch.no_grad():
            written = site.module(together) - site.module(without)
            total = site.module(together) - site.module(torch.zeros_like(together))
        found = _project(site, seen.z[layer])
        torch.testing.assert_close(found[:, 1], written, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.sum(1), total, rtol=1e-4, atol=1e-5)


def by_hand(pattern: np.ndarray, causal: bool) -> dict[str, float]:
    """Of one head, `b t s`: entropy, effective keys and sharpness, query after query."""
    shares, effective, sharp = [], [], []
    for rows in pattern:
        for query, row in enumerate(rows):
            keys = query + 1 if causal else len(row)
            if keys < 2:
                continue
            many = math.exp(-sum(p * math.log(p) for p in row if p > 0))
            shares.append(many / keys)
            effective.append(many)
            sharp.append(1 - (many - 1) / (keys - 1))
    first = pattern[0]
    spread = [np.delete(row, query).std() for query, row in enumerate(first)]
    return {
        "attention_entropy": float(np.mean(shares)),
        "effective_keys": float(np.mean(effective)),
        "sharpness": float(np.mean(sharp)),
        "row_std": float(np.mean(spread)),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_measures_of_patterns_are_those_of_a_loop(kind):
    seen = heads(made(kind), IDS)
    frame, causal = seen.frame(), kind != "bert"
    uniform = np.stack([np.ones((5, 5))] * 4)
    uniform = np.tril(uniform) if causal else uniform
    floor = by_hand(uniform / uniform.sum(-1, keepdims=True), causal)
    for (layer, head), own in frame.dropna(subset="head").groupby(["layer", "head"]):
        found = own.set_index("metric")
        for metric, expected in by_hand(seen.pattern[layer, :, head].numpy(), causal).items():
            assert found.loc[metric, "value"] == pytest.approx(expected, abs=1e-5), metric
            assert found.loc[metric, "chance"] == pytest.approx(floor[metric], abs=1e-5), metric


@pytest.mark.parametrize("kind", KINDS)
def test_measures_of_what_heads_write_are_those_of_a_loop(kind):
    model = made(kind)
    seen = heads(model, IDS)
    site = find_site(HuggingFaceModel(model, None, "tiny"), "blocks.1.attn.hook_z")  # pyright: ignore[reportArgumentType]
    weight = site.module.weight.detach()
    weight = weight if kind == "gpt2" else weight.T  # transformers' Conv1D has it the other way round
    written = [seen.z[1][:, h] @ part for h, part in enumerate(weight.split(seen.z.shape[-1]))]
    pooled = [part.mean(1) for part in written]
    number = len(written)
    cosine = torch.cosine_similarity
    for head in range(number):
        others = [h for h in range(number) if h != head]
        expected = np.mean([float(cosine(pooled[head], pooled[h]).abs().mean()) for h in others])
        assert value(seen, "head_cosine", 1, head) == pytest.approx(expected, abs=1e-5)
    sizes = np.array([float(part.norm(dim=-1).mean()) for part in written])
    shares = sizes / sizes.sum()
    assert [value(seen, "activity", 1, head) for head in range(number)] == pytest.approx(shares, abs=1e-5)
    evenness = math.exp(-sum(shares * np.log(shares))) / number
    assert value(seen, "usage_evenness", 1) == pytest.approx(evenness, abs=1e-5)
    pairs = [(g, h) for g in range(number) for h in range(g)]
    squares = np.mean([float(cosine(pooled[g], pooled[h]).square().mean()) for g, h in pairs])
    assert value(seen, "constraints.orthogonality", 1) == pytest.approx(squares, abs=1e-5)
    usage = -sum(shares * np.log(shares)) / math.log(number)
    assert value(seen, "constraints.head_usage", 1) == pytest.approx(usage, abs=1e-4)


def test_the_frame_has_a_row_for_every_layer_head_and_metric():
    frame = heads(made("gpt2"), IDS).frame()
    assert list(frame.columns) == ["layer", "head", "metric", "value", "chance"]
    of_heads, of_layers = frame.dropna(subset="head"), frame[frame["head"].isna()]
    assert (of_heads.groupby("metric").size() == 6).all()
    assert (of_layers.groupby("metric").size() == 2).all()
    constraints = {f"constraints.{name}" for name in CONSTRAINTS}
    assert set(of_layers["metric"]) == {"usage_evenness"} | constraints
    assert set(frame["metric"]) - constraints - BEYOND_THE_CATALOG <= set(METRICS)
    assert not frame.duplicated(["layer", "head", "metric"]).any()


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_texts_of_several_lengths_are_read_as_if_each_were_alone(kind):
    model, words = made(kind), tokenizer()
    texts = ["the cat sat on the mat", "a dog ran", "it saw the big tree and the small house"]
    seen = heads(model, texts, words)
    assert seen.mask.sum(1).tolist() == [8, 5, 11]  # with beginning and end
    model.set_attn_implementation("eager")
    for row, text in enumerate(texts):
        ids = torch.tensor([words(text)["input_ids"]])
        truth = torch.stack(model(input_ids=ids, output_attentions=True).attentions)[:, 0]
        length = ids.shape[1]
        torch.testing.assert_close(seen.pattern[:, row, :, :length, :length], truth, rtol=1e-4, atol=1e-5)
    queries = []
    for row, length in enumerate([8, 5, 11]):
        pattern = seen.pattern[0, row, 1, :length, :length].numpy()
        alone = by_hand(pattern[None], kind == "gpt2")
        queries.append((alone["sharpness"], length - (kind == "gpt2")))
    expected = sum(sharp * n for sharp, n in queries) / sum(n for _, n in queries)
    assert value(seen, "sharpness", 0, 1) == pytest.approx(expected, abs=1e-5)
    assert value(seen, "row_std", 0, 1) == pytest.approx(
        by_hand(seen.pattern[0, :1, 1, :8, :8].numpy(), kind == "gpt2")["row_std"], abs=1e-6
    )


def test_a_long_text_is_cut_and_read_as_far_as_asked():
    seen = heads(made("gpt2"), TEXT * 20, tokenizer(), context=10, tokens=100)
    assert seen.tokens.shape == (13, 10)  # eight words of ten tokens count
    assert heads(made("gpt2"), TEXT, tokenizer(), context=64).tokens.shape[1] == 32  # what the model takes


def test_hooks_modes_and_attention_are_as_they_were_also_after_an_error(model):
    heads(model, IDS)  # transformers keeps hooks of its own for attention, from the first time it is asked

    def hooks():
        return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]

    before = hooks()
    model.train()
    model.base_model.eval()
    modes = [module.training for module in model.modules()]
    with pytest.raises(IndexError):
        heads(model, torch.tensor([[99]]))
    heads(model, IDS)
    assert [module.training for module in model.modules()] == modes
    assert hooks() == before
    assert not any(module._forward_pre_hooks for module in model.modules())  # of which ours would be one
    assert model.config._attn_implementation == "sdpa"


def test_heads_are_seen_with_a_dictionary_in_place(model):
    """Whatever hooks there are act in the run, and none on the output matrix where what heads write is made."""
    width = 24 if isinstance(model, LlamaForCausalLM) else 12
    stack = Stack.start(Dictionary(d_sae=16), width, [0])
    plain = heads(model, IDS)
    with splice(model, stack, "blocks.0.attn.hook_z", keep_error=True):
        unchanged = heads(model, IDS)
    with splice(model, stack, "blocks.0.attn.hook_z") as spliced:
        spliced.add({3: 5.0})
        steered = heads(model, IDS)
    assert torch.equal(unchanged.pattern, plain.pattern)
    assert torch.equal(steered.pattern[0], plain.pattern[0])
    assert not torch.allclose(steered.pattern[1], plain.pattern[1], atol=1e-3)


def test_a_model_that_gives_no_attention_says_so(monkeypatch):
    model = made("gpt2")
    monkeypatch.setattr(type(model.base_model), "set_attn_implementation", lambda *args: None)
    with pytest.raises(UserError, match=r"gives the attention of 0 of 2 layers; .* attn_implementation=\"eager\""):
        heads(model, IDS)


CASES = {
    "transformer": Transformer(d_model=8, heads=4, d_ff=8),
    "encoder": Transformer(d_model=8, heads=2, d_ff=8, causal=False, positions="sinusoidal"),
    "routed": Transformer(d_model=8, heads=4, d_ff=8, attention=Routed(k=2)),
    "gauge": Gauge(irreps="2x0e + 1x1e", layers=2),
}


def on(world, settings) -> Models:
    return start_models(settings, len(world.vocabulary), world.length, len(world.answers), [0])


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_of_our_own_models_measures_are_those_of_their_evaluation(settings):
    """Stories of several lengths; means over tables of pairs by hand."""
    world = Stories(people=2, places=3, rounds=2)
    models = on(world, settings)
    [batch] = held_out_batches(world, 40)
    seen = heads(models.module(0), batch.tokens)
    tables = attention_tables(models, [batch])
    off = ~torch.eye(settings.heads_per_layer, dtype=torch.bool)
    for layer in range(2):
        for head in range(settings.heads_per_layer):
            others = off[head]
            expected = {
                "attention_entropy": tables["attention_entropy"][0, layer, head],
                "activity": tables["activity"][0, layer, head],
                "head_rank": tables["rank"][0, layer, head],
                "head_cosine": tables["cosine"][0, layer, head, others].mean(),
                "head_cka": tables["cka"][0, layer, head, others].mean(),
                "head_dependence": tables["dependence"][0, layer, others, head].max(),
                "head_dependence_nonlinear": tables["dependence_nonlinear"][0, layer, others, head].max(),
            }
            for metric, table in expected.items():
                assert value(seen, metric, layer, head) == pytest.approx(float(table), rel=1e-3, abs=1e-5), metric
    constraints = {name: kind(weight=1.0, layers=(1,)) for name, kind in CONSTRAINTS.items()}
    output = models.forward(batch.tokens, recorded_for(constraints, 2))
    for name, cost in costs(constraints, output, 2).items():
        assert value(seen, f"constraints.{name}", 1) == pytest.approx(float(cost), rel=1e-3, abs=1e-5), name
    dealt = seen.frame().query("metric == 'head_dependence' and layer == 1")["chance"].max()
    assert dealt == pytest.approx(float(tables["dependence_dealt"]), rel=1e-3)


@pytest.mark.parametrize("settings", [CASES["transformer"], CASES["gauge"]], ids=["transformer", "gauge"])
def test_of_our_own_models_uniformity_is_that_of_the_diagnosis(settings):
    world = Text(context=12, validation=400)
    models = on(world, settings)
    text = "the quick brown fox jumps over the lazy dog " * 4
    seen = heads(models.module(0), text, world.tokenized.tokenizer, tokens=96)
    assert seen.tokens.shape == (8, 12)
    assert seen.tokens[0].tolist() == world.tokenized.tokenizer.encode(text[:12]).tolist()
    found = diagnose(models, seen.tokens)
    for metric in ("row_std", "sharpness", "effective_keys"):
        torch.testing.assert_close(seen.values[metric].double(), found.tables[metric][0].double())
    torch.testing.assert_close(seen.chance["row_std"][0, 0].double(), found.chance["row_std"][0].double())
    assert seen.values["query_variation"][-1].mean() == pytest.approx(float(found.values["query_variation"]), abs=1e-6)
    assert seen.chance["query_variation"][0, 0] == pytest.approx(float(found.chance["query_variation"]), abs=1e-6)


@pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
def test_every_kind_of_our_models_has_a_frame(settings):
    model = start_models(settings, 10, 8, 5, [0]).module(0).train()
    seen = heads(model, torch.randint(1, 10, (20, 8), generator=torch.Generator().manual_seed(0)))
    assert model.training
    frame = seen.frame()
    heads_and_layers = 2 * settings.heads_per_layer
    assert (frame.dropna(subset="head").groupby("metric").size() == heads_and_layers).all()
    assert np.isfinite(frame[frame["metric"] == "constraints.independence"]["value"]).all()


def test_what_needs_more_sequences_is_not_a_number():
    seen = heads(made("gpt2"), IDS[:3])
    assert math.isnan(value(seen, "constraints.independence"))
    assert math.isnan(value(seen, "head_dependence", 0, 0))
    assert not math.isnan(value(seen, "constraints.orthogonality"))


def test_what_cannot_be_looked_at_is_refused():
    models = on(Stories(), CASES["transformer"])
    with pytest.raises(UserError, match=r"accepted: one as a module, models.module\(0\)"):
        heads(models, IDS)
    with pytest.raises(UserError, match="heads of a Linear were asked for"):
        heads(nn.Linear(2, 2), IDS)
    with pytest.raises(UserError, match="without a tokenizer; accepted: tokenizer = transformers"):
        heads(made("gpt2"), "the cat")
    with pytest.raises(UserError, match=r"without a tokenizer; accepted: tokenizer = world.tok"):
        heads(models.module(0), "the cat")
    for empty in ("", []):
        with pytest.raises(UserError, match="the text has no tokens"):
            heads(made("gpt2"), empty, tokenizer())
    with pytest.raises(UserError, match="there is no folder 'nowhere/at-all'"):
        heads("nowhere/at-all", "the cat")
