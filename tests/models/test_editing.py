"""A forward pass goes on with what an edit returns, at every site of every model; without an edit nothing changes."""

import pytest
import torch

from tests.models.shapes import ALL, GAUGES, SHAPES, TOKENS, start
from unbraid.errors import UserError
from unbraid.models.models import edit_rows, token_rows

over_shapes = pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
REAL = TOKENS != 0


@over_shapes
def test_no_edit_changes_no_bit(settings):
    models = start(settings)
    plain = models.forward(TOKENS).resid
    assert torch.equal(plain, models.forward(TOKENS, edit={}).resid)
    seen = []
    last = settings.sites()[-1]
    models.forward(TOKENS, edit={last: lambda x: seen.append(x.shape) or x})
    assert len(seen) == 1


@over_shapes
def test_an_edit_that_returns_what_it_is_given_changes_nothing_at_any_site(settings):
    models = start(settings)
    plain = models.forward(TOKENS).resid
    exact = not isinstance(settings, tuple(type(gauge) for gauge in GAUGES.values()))
    for site in settings.sites():
        same = models.forward(TOKENS, edit={site: lambda x: x}).resid
        if exact and not site.endswith("hook_result"):  # heads' results are summed one by one
            assert torch.equal(plain, same), site
        torch.testing.assert_close(same[:, REAL], plain[:, REAL], rtol=0, atol=1e-4)


@over_shapes
def test_what_is_recorded_at_an_edited_site_is_the_edited_one_and_what_follows_differs(settings):
    models = start(settings)
    plain = models.forward(TOKENS).resid
    for site in settings.sites():
        before = models.forward(TOKENS, [site]).recorded[site]
        ramp = torch.linspace(0.5, 2, before.shape[-1])  # no layer norm hides it, and no softmax over keys
        output = models.forward(TOKENS, [site], edit={site: lambda x, ramp=ramp: ramp * x + ramp})
        torch.testing.assert_close(output.recorded[site], ramp * before + ramp, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(output.resid[:, REAL], plain[:, REAL], atol=1e-4), site


@over_shapes
@pytest.mark.parametrize("layer", [0, 1])
def test_a_head_whose_output_is_edited_to_zero_is_an_ablated_head(settings, layer):
    models = start(settings)
    ablated = models.forward(TOKENS, ablate_heads=[(layer, 1)]).resid

    def silence(x):
        return x * (torch.arange(x.shape[2]) != 1)[:, None, None]

    for name in ("hook_z", "hook_result"):
        edited = models.forward(TOKENS, edit={f"blocks.{layer}.attn.{name}": silence}).resid
        torch.testing.assert_close(edited[:, REAL], ablated[:, REAL], rtol=0, atol=1e-4)


@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
def test_a_transformer_with_anothers_residual_stream_says_what_the_other_says(settings):
    models = start(settings)
    other = torch.where(REAL, TOKENS % 9 + 1, TOKENS)  # other words, the same padding
    for layer in range(2):
        site = f"blocks.{layer}.hook_resid_post"
        theirs = models.forward(other, [site])
        ours = models.forward(TOKENS, edit={site: lambda _, x=theirs.recorded[site]: x})
        assert torch.equal(ours.resid, theirs.resid)


@pytest.mark.parametrize("settings", GAUGES.values(), ids=GAUGES)
def test_what_is_added_to_a_gauge_models_last_means_is_added_to_what_it_reads(settings):
    models = start(settings)
    plain = models.forward(TOKENS).resid
    added = torch.linspace(-1, 1, plain.shape[-1])
    output = models.forward(TOKENS, edit={"blocks.1.hook_resid_post": lambda x: x + added})
    torch.testing.assert_close(output.resid, plain + added, rtol=0, atol=1e-5)


def test_the_edit_of_one_sequence_leaves_the_others_alone():
    for settings in ALL.values():
        models, site = start(settings), "blocks.0.hook_resid_pre"

        def edit(x):
            return torch.cat([x[:, :1].flip(-1), x[:, 1:]], 1)

        plain, edited = models.forward(TOKENS).resid, models.forward(TOKENS, edit={site: edit}).resid
        torch.testing.assert_close(edited[:, 1:][:, REAL[1:]], plain[:, 1:][:, REAL[1:]], rtol=0, atol=1e-4)
        assert not torch.allclose(edited[:, 0], plain[:, 0], atol=1e-3)


def test_rows_of_tokens_are_edited_where_a_site_has_one_for_every_head():
    models, site = start(SHAPES["causal"]), "blocks.1.attn.hook_z"
    heads = models.forward(TOKENS, [site]).recorded[site]
    rows = token_rows(heads)
    assert rows.shape == (3, 3, 6, 8)
    assert torch.equal(rows[..., 4:], heads[:, :, 1])  # the second of two heads
    added = torch.arange(8.0)
    output = models.forward(TOKENS, [site], edit={site: edit_rows(lambda x: x + added)})
    assert torch.equal(token_rows(output.recorded[site]), rows + added)


def test_a_site_that_is_none_and_another_shape_are_refused():
    models = start(SHAPES["causal"])
    with pytest.raises(UserError, match=r"no 'blocks.0.hook_resid_pos' to edit; did you mean 'blocks.0.hook_resid_pos"):
        models.forward(TOKENS, edit={"blocks.0.hook_resid_pos": torch.zeros_like})
    with pytest.raises(UserError, match=r"no 'blocks.1.attn.hook_pattern' to edit"):
        models.forward(TOKENS, edit={"blocks.1.attn.hook_pattern": torch.zeros_like})
    with pytest.raises(UserError, match=r"returned the shape \(3, 3, 6\); accepted: \(3, 3, 6, 8\)"):
        models.forward(TOKENS, edit={"blocks.1.hook_resid_mid": lambda x: x[..., 0]})
