"""What is recorded is what is used, and recording changes nothing."""

import pytest
import torch

from tests.models.shapes import ALL, SHAPES, TOKENS, start
from unbraid.errors import UserError
from unbraid.models import Transformer
from unbraid.models.layers import linear

over_shapes = pytest.mark.parametrize("settings", ALL.values(), ids=ALL)


@over_shapes
@pytest.mark.parametrize("members", [1, 2])
def test_recording_changes_nothing(settings, members):
    models = start(settings, range(members))
    step = 5 if isinstance(settings, Transformer) and settings.dropout else None
    plain, all_kept = models.forward(TOKENS, step=step), models.forward(TOKENS, settings.hooks(), step=step)
    real = TOKENS != 0
    torch.testing.assert_close(plain.resid[:, real], all_kept.resid[:, real], rtol=0, atol=1e-5)
    assert plain.recorded == {}
    assert set(all_kept.recorded) == set(settings.hooks())


@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
def test_what_is_recorded_is_what_is_used(settings):
    models = start(settings)
    kept = models.forward(TOKENS, settings.hooks(), step=5).recorded
    for layer in range(2):
        block = {name.removeprefix(f"blocks.{layer}."): t for name, t in kept.items()}
        pattern, z = block["attn.hook_pattern"], block["attn.hook_z"]
        read = pattern @ block["attn.hook_v"]
        if (memory := block.get("attn.hook_memory")) is not None and memory.shape[-1]:
            read = read + memory @ models.weights[f"blocks.{layer}.attn.memory_values"][:, None]
        torch.testing.assert_close(read, z)
        taken = z * block["attn.hook_gate"].mT[..., None] if "attn.hook_gate" in block else z
        out = models.weights[f"blocks.{layer}.attn.out"]
        torch.testing.assert_close(linear(taken.transpose(2, 3).flatten(3), out), block["hook_attn_out"])
        torch.testing.assert_close(block["attn.hook_result"].sum(2), block["hook_attn_out"], rtol=0, atol=1e-5)
        torch.testing.assert_close(block["hook_resid_pre"] + block["hook_attn_out"], block["hook_resid_mid"])
        torch.testing.assert_close(block["hook_resid_mid"] + block["hook_mlp_out"], block["hook_resid_post"])
    torch.testing.assert_close(kept["blocks.0.hook_resid_post"], kept["blocks.1.hook_resid_pre"])


def test_patterns_are_shares_over_what_may_be_seen():
    for causal in (True, False):
        settings = Transformer(d_model=8, heads=2, causal=causal)
        name = "blocks.1.attn.hook_pattern"
        pattern = start(settings).forward(TOKENS, [name]).recorded[name]
        torch.testing.assert_close(pattern.sum(-1), torch.ones(3, 3, 2, 6))
        ahead = torch.triu(torch.ones(6, 6), 1).bool()
        assert (pattern[..., ahead] == 0).all() == causal
        assert (pattern[:, 1, :, :4, 4:] == 0).all()


def test_only_what_is_named_is_kept_and_a_wrong_name_is_refused():
    models = start(SHAPES["causal"])
    assert set(models.forward(TOKENS, ["blocks.1.hook_mlp_out"]).recorded) == {"blocks.1.hook_mlp_out"}
    with pytest.raises(UserError, match=r"no 'blocks.2.attn.hook_z' to record; did you mean 'blocks.\d.attn.hook_z'"):
        models.forward(TOKENS, ["blocks.2.attn.hook_z"])


@pytest.mark.parametrize("recorded", [(), ("blocks.1.attn.hook_pattern",)])
def test_a_silenced_head_reads_nothing_and_the_others_as_before(recorded):
    models = start(SHAPES["causal"])
    names = ["blocks.1.attn.hook_z", "blocks.1.hook_attn_out", "blocks.1.attn.hook_result", *recorded]
    whole = models.forward(TOKENS, names).recorded
    less = models.forward(TOKENS, names, ablate_heads={(1, 0)}).recorded
    assert (less["blocks.1.attn.hook_z"][:, :, 0] == 0).all()
    torch.testing.assert_close(less["blocks.1.attn.hook_z"][:, :, 1], whole["blocks.1.attn.hook_z"][:, :, 1])
    only = whole["blocks.1.attn.hook_result"][:, :, 1]
    torch.testing.assert_close(less["blocks.1.hook_attn_out"], only, rtol=0, atol=1e-5)
