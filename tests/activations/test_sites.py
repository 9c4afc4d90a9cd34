"""Sites are where they say, a run stops there, and what is put in their place is what the rest of the model sees."""

import pytest
import torch

from unbraid.activations.sites import find_site, read_site, replace_at_site, site_names
from unbraid.errors import UserError

TOKENS = torch.tensor([[1, 4, 5, 6, 2], [1, 7, 8, 9, 10]])


@pytest.fixture(params=["llama", "gpt2", "bert"])
def model(request):
    return request.getfixturevalue(request.param)


def states(model):
    """What transformers itself says of every layer: the embedding, then what each block gives."""
    return model.model(input_ids=TOKENS, output_hidden_states=True).hidden_states


def blocks(model):
    return {"llama": "model.layers", "gpt2": "transformer.h", "bert": "encoder.layer"}[model.model.config.model_type]


def test_the_residual_stream_is_what_transformers_says(model):
    truth = states(model)
    for layer in range(2):  # after the last one, transformers gives what the final norm made of it
        assert torch.equal(read_site(model, find_site(model, f"blocks.{layer}.hook_resid_pre"), TOKENS), truth[layer])
        assert torch.equal(
            read_site(model, find_site(model, f"blocks.{layer}.hook_resid_post"), TOKENS), truth[layer + 1]
        )
        assert torch.equal(read_site(model, find_site(model, f"{blocks(model)}.{layer}"), TOKENS), truth[layer + 1])


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_attention_and_mlp_add_up_to_the_block(kind, request):
    model = request.getfixturevalue(kind)
    at = {
        hook: read_site(model, find_site(model, f"blocks.1.hook_{hook}"), TOKENS)
        for hook in ("resid_pre", "attn_out", "mlp_out", "resid_post")
    }
    torch.testing.assert_close(at["resid_pre"] + at["attn_out"] + at["mlp_out"], at["resid_post"])


def test_in_an_encoder_each_sum_is_normed(bert):
    at = {
        hook: read_site(bert, find_site(bert, f"blocks.1.hook_{hook}"), TOKENS)
        for hook in ("resid_pre", "attn_out", "mlp_out", "resid_post")
    }
    block = bert.model.encoder.layer[1]
    middle = block.attention.output.LayerNorm(at["resid_pre"] + at["attn_out"])
    torch.testing.assert_close(block.output.LayerNorm(middle + at["mlp_out"]), at["resid_post"])


def test_the_heads_times_the_output_matrix_are_the_attention(llama, gpt2, bert):
    outputs = {
        "llama": llama.model.model.layers[1].self_attn.o_proj,
        "gpt2": gpt2.model.transformer.h[1].attn.c_proj,
        "bert": bert.model.encoder.layer[1].attention.output.dense,
    }
    for model in (llama, gpt2, bert):
        z = read_site(model, find_site(model, "blocks.1.attn.hook_z"), TOKENS)
        output = outputs[model.model.config.model_type]
        torch.testing.assert_close(output(z), read_site(model, find_site(model, "blocks.1.hook_attn_out"), TOKENS))


def test_the_run_stops_at_the_site(llama):
    after = []
    handle = llama.model.model.layers[2].register_forward_hook(lambda *_: after.append(1))
    read_site(llama, find_site(llama, "blocks.1.hook_resid_post"), TOKENS)
    assert not after
    llama.model(input_ids=TOKENS)
    handle.remove()
    assert after


@pytest.mark.parametrize("hook", ["hook_resid_pre", "hook_resid_post", "hook_attn_out", "attn.hook_z", "hook_mlp_out"])
def test_replacing_by_itself_changes_nothing_and_by_zero_something(model, hook):
    where, last = find_site(model, f"blocks.1.{hook}"), lambda: model.model(input_ids=TOKENS)[0]
    plain = last()
    with replace_at_site(where, lambda x: x.clone()):
        assert torch.equal(last(), plain)
    with replace_at_site(where, torch.zeros_like):
        assert not torch.allclose(last(), plain)
    assert torch.equal(last(), plain)


def test_what_replaces_a_block_is_what_the_next_block_takes(llama):
    chosen = torch.randn(2, 5, 12)
    with replace_at_site(find_site(llama, "blocks.0.hook_resid_post"), lambda x: chosen):
        assert torch.equal(read_site(llama, find_site(llama, "blocks.1.hook_resid_pre"), TOKENS), chosen)


def test_every_name_listed_is_a_site(model):
    listed = site_names(model)
    assert {f"blocks.2.{hook}" for hook in ("hook_resid_post", "attn.hook_z", "hook_mlp_out")} <= set(listed)
    assert [find_site(model, name).name for name in listed] == listed


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("model.layer.1", "did you mean 'model.layers.1'?"),
        ("blocks.1.hook_resid_pst", "did you mean 'blocks.1.hook_resid_post'?"),
        ("blocks.9.hook_resid_post", "blocks.2.hook_resid_post"),
        ("model.layers", "model.layers.0"),
        ("", "accepted: "),
    ],
)
def test_a_site_that_is_not_there_is_answered_with_the_nearest(llama, asked, hint):
    with pytest.raises(UserError, match=f"has no site '{asked}'") as refusal:
        find_site(llama, asked)
    assert hint in str(refusal.value)


def test_a_site_without_one_row_a_token_is_refused(llama, bert):
    with pytest.raises(UserError, match="not one row a token"):
        read_site(llama, find_site(llama, "model.rotary_emb"), TOKENS)
    with pytest.raises(UserError, match="not one row a token"):
        read_site(bert, find_site(bert, "pooler"), TOKENS)
