"""A stack is its members, a member is torch's own encoder layer, and what cannot be is refused in one sentence."""

import tomllib

import numpy as np
import pytest
import torch
from torch import nn

from tests.models.shapes import ALL, ASKED, SHAPES, TOKENS, start
from unbraid.battery import attention as battery
from unbraid.battery.attention import ModelCase
from unbraid.config import check, to_toml
from unbraid.errors import UserError
from unbraid.models import ATTENTIONS, FEED_FORWARDS, PUBLISHED, Transformer, start_models


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
def test_promises(settings, recorded):
    """Those of `unbraid/battery/attention.py`, where `unbraid check-plugin` runs them too."""
    case = ModelCase(settings, recorded)
    battery.causal_when_asked(case)
    if not recorded:
        battery.company_does_not_matter(case)
        battery.padding_changes_nothing(case)
        battery.every_weight_learns(case)


@pytest.mark.parametrize("settings", [s for name, s in SHAPES.items() if "dropping" not in name])
def test_recording_changes_nothing(settings):
    battery.recording_changes_nothing(ModelCase(settings))


def torch_layer(settings, weights, layer):
    """torch's own pre-norm layer with a member's weights in it."""
    module = nn.TransformerEncoderLayer(
        settings.d_model, settings.heads, settings.d_ff, 0.0, "gelu", batch_first=True, norm_first=True
    )
    own = {name: w[0] for name, w in weights.items()}
    place = f"blocks.{layer}."
    module.load_state_dict(
        {
            "self_attn.in_proj_weight": own[f"{place}attn.qkv"],
            "self_attn.in_proj_bias": torch.zeros(3 * settings.d_model),
            "self_attn.out_proj.weight": own[f"{place}attn.out"],
            "self_attn.out_proj.bias": torch.zeros(settings.d_model),
            "linear1.weight": own[f"{place}mlp.in.weight"],
            "linear1.bias": own[f"{place}mlp.in.bias"],
            "linear2.weight": own[f"{place}mlp.out.weight"],
            "linear2.bias": own[f"{place}mlp.out.bias"],
            **{f"norm{n}.{part}": own[f"{place}norm_{n}.{part}"] for n in (1, 2) for part in ("weight", "bias")},
        }
    )
    return module


@pytest.mark.parametrize("recorded", [(), ("blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern")])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("causal", [True, False])
def test_a_member_is_torchs_own_encoder_layer(causal, members, recorded, rng):
    settings = Transformer(d_model=12, heads=3, d_ff=20, causal=causal, positions="learned")
    models = start(settings, range(members))
    weights = {name: p + 0.1 * torch.from_numpy(rng.standard_normal(p.shape)) for name, p in models.weights.items()}
    models = models.with_parameters({name: w.float() for name, w in weights.items()})
    hidden = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1) if causal else None
    for index in range(members):
        one = models.member(index)
        weights = one.parameters()
        x = weights["embed"][0][TOKENS] + weights["positions"][0, :6]
        for layer in range(2):
            x = torch_layer(settings, weights, layer)(x, src_mask=hidden, src_key_padding_mask=TOKENS == 0)
        expected = nn.functional.layer_norm(x, (12,), weights["final_norm.weight"][0], weights["final_norm.bias"][0])
        ours = models.forward(TOKENS, recorded).resid[index]
        torch.testing.assert_close(ours[TOKENS != 0], expected[TOKENS != 0], rtol=0, atol=1e-5)


def test_answers_are_read_at_the_questions_last_token_or_from_the_mean(rng):
    for readout in ("question", "mean"):
        models = start(Transformer(d_model=8, heads=2, readout=readout, causal=False))
        passed = models.forward(TOKENS)
        resid, weight, bias = (
            t.numpy() for t in (passed.resid, models.weights["answer.weight"], models.weights["answer.bias"])
        )
        logits = models.read(passed, ASKED).numpy()
        for m, b, q in np.ndindex(3, 3, 2):
            words = int((TOKENS[b] != 0).sum())
            row = resid[m, b, ASKED[b, q]] if readout == "question" else resid[m, b, :words].mean(0)
            np.testing.assert_allclose(logits[m, b, q], weight[m] @ row + bias[m], atol=1e-5)


def test_rotary_attention_knows_distances_alone():
    """Moved along with everything that it sees, a token sees the same."""
    models = start(Transformer(d_model=8, heads=2, layers=1, positions="rotary"))
    name = "blocks.0.attn.hook_pattern"
    early = models.forward(torch.tensor([[3, 1, 4, 1]]), [name]).recorded[name]
    late = models.forward(torch.tensor([[9, 9, 3, 1, 4, 1]]), [name]).recorded[name][..., 2:, 2:]
    torch.testing.assert_close(late / late.sum(-1, keepdim=True), early, rtol=0, atol=1e-5)
    swapped = models.forward(torch.tensor([[1, 3, 4, 1]]), [name]).recorded[name]
    assert (swapped[..., 3, :2] - early[..., 3, :2].flip(-1)).abs().max() > 1e-3


@pytest.mark.parametrize("causal", [True, False])
def test_nearness_is_taken_off_the_scores_by_hand(causal):
    """Slopes 1, 1/10 and 0 of three heads."""
    settings = Transformer(d_model=12, heads=3, layers=1, causal=causal)
    models, names = start(settings), [f"blocks.0.attn.hook_{part}" for part in ("q", "k", "pattern")]
    q, k, pattern = (models.forward(TOKENS, names).recorded[name].numpy() for name in names)
    for m, h, t in np.ndindex(3, 3, 4):
        seen = range(t + 1) if causal else range(4)
        scores = [q[m, 1, h, t] @ k[m, 1, h, s] / 2 - (1, 0.1, 0)[h] * abs(t - s) for s in seen]
        expected = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(pattern[m, 1, h, t, : len(expected)], expected, atol=1e-6)


def test_sinusoidal_positions_are_those_of_the_paper():
    models = start(Transformer(d_model=8, heads=2, positions="sinusoidal"))
    name = "blocks.0.hook_resid_pre"
    x = models.forward(TOKENS, [name]).recorded[name].numpy()
    embed = models.weights["embed"].numpy()
    for b, t, d in np.ndindex(*TOKENS.shape, 8):
        angle = t / 10000 ** ((d - d % 2) / 8)
        expected = embed[:, TOKENS[b, t], d] * 8**0.5 + (np.sin(angle) if d % 2 == 0 else np.cos(angle))
        np.testing.assert_allclose(x[:, b, t, d], expected, atol=1e-5)


def test_every_attention_and_feed_forward_is_in_the_batteries_and_survives_toml():
    assert {type(settings.attention) for settings in SHAPES.values()} == set(ATTENTIONS.values())
    assert {type(settings.feed_forward) for settings in SHAPES.values()} == set(FEED_FORWARDS.values())
    for settings in SHAPES.values():
        assert check(Transformer, tomllib.loads(to_toml(settings.to_dict())), "model") == settings


def test_the_seeds_sizes_give_the_seeds_number_of_weights():
    """By hand: 25·128 + 2·(4·128² + 2·128·256 + 256 + 128 + 4·128) + 2·128 + 6·128 + 6."""
    models = start_models(PUBLISHED, vocabulary=25, length=180, classes=6, seeds=[42])
    assert sum(p.numel() for p in models.parameters().values()) == 268_166


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"heads": 3}, "heads is 3, which does not divide d_model 64; accepted: 1, 2, 4, 8, 16, 32, 64"),
        ({"positions": "rotary", "heads": 64}, "rotary positions need pairs"),
        ({"positions": "sinusoidal", "d_model": 5, "heads": 1}, "sinusoidal positions need pairs"),
        ({"attention": {"kind": "soft"}}, "attention.kind is 'soft'; did you mean 'softmax'"),
        ({"attention": {"kind": "routed", "k": 5}}, "k is 5 beside 0 shared heads, and there are 4 heads; accepted"),
        ({"feed_forward": {"kind": "routed", "k": 5}}, "k is 5, more than the 4 experts; accepted: 1 to 4"),
        ({"feed_forward": {"kind": "routed", "experts": 3}}, "d_ff is 256, which 3 experts do not divide"),
    ],
)
def test_shapes_that_cannot_be_are_refused(settings, said):
    with pytest.raises(UserError, match=said):
        check(Transformer, settings, "model")


def test_inputs_that_cannot_be_are_refused():
    models = start(SHAPES["causal"], length=4)
    with pytest.raises(UserError, match=r"6 tokens was given to a model of 4 positions; accepted: at most 4"):
        models.forward(TOKENS)
    with pytest.raises(UserError, match=r"the word 11 was given to a model of 10 words"):
        models.forward(torch.tensor([[1, 11]]))
    with pytest.raises(UserError, match=r"head 2 of layer 1 was to be ablated; the model has 2 layers of 2 heads"):
        models.forward(TOKENS[:, :4], ablate_heads={(1, 2)})
