"""A dictionary spliced into a model does what hooks written by hand do, and leaves nothing behind."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.models.shapes import ALL, TOKENS, start
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.activations import JumpRelu, Relu, TopK
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.stack import Target
from unbraid.errors import UserError
from unbraid.evaluation.splice import Spliced, splice
from unbraid.models import Model, Transformer
from unbraid.models.models import edit_rows, token_rows

WIDTH, SITE = 12, "blocks.1.hook_resid_post"
IDS = torch.tensor([[1, 4, 5, 6, 2], [1, 7, 8, 9, 10]])


def made(kind: str) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None}
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(n_embd=WIDTH, n_layer=3, n_head=2, n_positions=32, **sizes)).eval()
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=20,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=32,
        **sizes,
    )
    return LlamaForCausalLM(config).eval()


def block(model) -> nn.Module:
    """The second of three."""
    return model.transformer.h[1] if isinstance(model, GPT2LMHeadModel) else model.model.layers[1]


@pytest.fixture(params=["gpt2", "llama"])
def model(request):
    return made(request.param)


def dictionary(rule=None, d_sae=24, width=WIDTH, **settings) -> Stack:
    return Stack.start(Dictionary(d_sae=d_sae, activation=rule or TopK(k=3), **settings), width, [0])


def identity() -> Stack:
    """Every direction and its opposite: relu of both gives x back."""
    rows = torch.cat([torch.eye(WIDTH), -torch.eye(WIDTH)])[None]
    return Stack(rows, torch.zeros(1, 2 * WIDTH), rows.clone(), None, Relu())


RULES = [TopK(k=3), Relu(), JumpRelu()]
over_rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)


@contextmanager
def by_hand(model, change):
    """The output of the second block, changed by a plain torch hook."""

    def hook(module, given, output):
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    handle = block(model).register_forward_hook(hook)
    yield
    handle.remove()


def dense_codes(stack: Stack, x: torch.Tensor) -> torch.Tensor:
    return stack.encode(x.flatten(0, -2)).to_dense()[0].view(*x.shape[:-1], -1)


def logits_of(model) -> torch.Tensor:
    return model(input_ids=IDS).logits


@pytest.mark.parametrize("keep_error", [False, True])
def test_the_identity_changes_nothing(model, keep_error):
    plain = logits_of(model)
    with splice(model, identity(), SITE, keep_error=keep_error):
        torch.testing.assert_close(logits_of(model), plain, rtol=1e-4, atol=1e-5)


@over_rules
@torch.no_grad()
def test_without_edits_the_reconstruction_stands_there_or_with_its_error_all_as_it_was(model, rule):
    plain, stack = logits_of(model), dictionary(rule, pre_bias=True)
    stack.pre_bias.copy_(torch.linspace(-1, 1, WIDTH))
    with by_hand(model, lambda x: stack.decode(stack.encode(x.flatten(0, 1)))[0].view_as(x)):
        expected = logits_of(model)
    assert not torch.allclose(expected, plain, atol=1e-2)
    with splice(model, stack, SITE):
        torch.testing.assert_close(logits_of(model), expected)
    with splice(model, stack, SITE, keep_error=True):
        assert torch.equal(logits_of(model), plain)


@over_rules
@pytest.mark.parametrize("gradients", [False, True])
def test_ablating_is_subtracting_the_features_code_times_its_row(model, rule, gradients):
    stack = dictionary(rule)
    seen = []

    def change(x):
        codes = dense_codes(stack, x)
        seen.append(codes)
        feature = int(codes.sum((0, 1)).argmax())
        return x - codes[..., feature, None] * stack.decoder[0, feature]

    with torch.set_grad_enabled(gradients):
        with by_hand(model, change):
            expected = logits_of(model)
        with splice(model, stack, SITE, keep_error=True) as spliced:
            plain = logits_of(model)
            torch.testing.assert_close(spliced.codes, seen[0])
            spliced.ablate(int(seen[0].sum((0, 1)).argmax()))
            torch.testing.assert_close(logits_of(model), expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(spliced.codes, seen[0])  # what is read, not what is written
            assert not torch.allclose(expected, plain, atol=1e-3)
            spliced.reset()
            assert torch.equal(logits_of(model), plain)


@over_rules
@pytest.mark.parametrize("keep_error", [False, True])
@torch.no_grad()
def test_scaling_and_adding_by_hand(model, rule, keep_error):
    """Of features that fire and of ones that do not; both at once of one."""
    stack, factors, amounts = dictionary(rule), torch.ones(24), torch.zeros(24)
    factors[[2, 5]], amounts[[5, 7]] = torch.tensor([3.0, -1.0]), torch.tensor([0.5, 2.0])

    def change(x):
        codes = dense_codes(stack, x)
        edited = factors * codes + amounts
        return (x - codes @ stack.decoder[0] if keep_error else 0) + edited @ stack.decoder[0]

    with by_hand(model, change):
        expected = logits_of(model)
    with splice(model, stack, SITE, keep_error=keep_error) as spliced:
        spliced.scale({2: 3.0, 5: 7.0})
        spliced.scale({5: -1.0})
        spliced.add({7: 2.0, 5: 0.5})
        torch.testing.assert_close(logits_of(model), expected, rtol=1e-4, atol=1e-4)
        spliced.reset()
        spliced.add({7: 2.0})
        spliced.ablate(7)  # takes back what was added, too
        ablated = logits_of(model)
        spliced.reset()
        spliced.scale({7: 0.0})
        assert torch.equal(logits_of(model), ablated)


@over_rules
def test_attribution_is_what_a_linear_metric_loses_by_the_ablation(rule):
    """What follows the site is linear here, so that a finite difference of any size is exact."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, WIDTH), nn.Linear(WIDTH, 4))
    stack, x = dictionary(rule), torch.randn(3, 5)
    with splice(model, stack, "0") as spliced:
        effects = spliced.attribute(model(x)[1, 2])
        assert effects.shape == (3, 24)
        assert not effects[[0, 2]].any()
        plain, codes = model(x)[1, 2].detach(), spliced.codes[1]
        for feature in range(24):
            spliced.reset()
            spliced.ablate(feature)
            assert effects[1, feature] == pytest.approx(float((plain - model(x)[1, 2]).detach()), abs=1e-5)
        assert (effects[1] != 0).sum() == (codes != 0).sum() > 0


@pytest.mark.parametrize("keep_error", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_attribution_is_the_code_times_the_slope_of_a_logit(model, keep_error, frozen):
    """Against a central difference (Llama's norms are in float32 whatever the model is in), with another edit there."""
    model.double().requires_grad_(not frozen)
    stack = dictionary(TopK(k=3))
    stack = stack.with_parameters({name: p.double() for name, p in stack.parameters().items()})
    with splice(model, stack, SITE, keep_error=keep_error) as spliced:
        spliced.add({1: 0.5})
        effects = spliced.attribute(logits_of(model)[1, -1, 7])
        codes = spliced.codes
        codes[..., 1] += 0.5
        assert not effects[0].any()  # another sequence
        assert torch.equal(effects[1] != 0, codes[1] != 0)
        total = effects.sum((0, 1))
        with torch.no_grad():
            for feature in (1, *codes[..., 2:].sum((0, 1)).topk(3).indices.add(2).tolist()):
                logits = []
                for step in (3e-3, -3e-3):  # all codes of the feature at once
                    spliced.reset()
                    spliced.add({1: 0.5 * (1 + step) if feature == 1 else 0.5})
                    spliced.scale({feature: 1 + step})
                    logits.append(float(logits_of(model)[1, -1, 7]))
                assert float(total[feature]) == pytest.approx((logits[0] - logits[1]) / 6e-3, rel=1e-3, abs=1e-4)


def test_gradients_before_the_site_are_those_of_the_readable_dictionary(model):
    """Through the encoder and, with the error kept, exactly those of the model as it is."""
    stack, weight = dictionary(Relu()), next(model.parameters())
    plain = torch.autograd.grad(logits_of(model)[0, -1, 3], weight)[0]
    with splice(model, stack, SITE, keep_error=True):
        kept = torch.autograd.grad(logits_of(model)[0, -1, 3], weight)[0]
    torch.testing.assert_close(kept, plain, rtol=1e-4, atol=1e-5)
    with by_hand(model, lambda x: stack.decode(stack.encode(x.flatten(0, 1)))[0].view_as(x)):
        expected = torch.autograd.grad(logits_of(model)[0, -1, 3], weight)[0]
    with splice(model, stack, SITE):
        found = torch.autograd.grad(logits_of(model)[0, -1, 3], weight)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_steering_acts_on_every_generated_token(model):
    stack = dictionary()
    settings = {"max_new_tokens": 6, "do_sample": False, "output_scores": True, "return_dict_in_generate": True}
    plain = model.generate(IDS, pad_token_id=0, **settings)
    lengths = []

    def change(x):
        lengths.append(x.shape[1])
        return x + 4 * stack.decoder[0, 3]

    with by_hand(model, change):
        expected = model.generate(IDS, pad_token_id=0, **settings)
    assert lengths == [5, 1, 1, 1, 1, 1]
    with splice(model, stack, SITE, keep_error=True) as spliced:
        spliced.add({3: 4.0})
        found = model.generate(IDS, pad_token_id=0, **settings)
        assert spliced.codes.shape == (2, 1, 24)
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(torch.stack(found.scores), torch.stack(plain.scores), atol=0.1)
    again = model.generate(IDS, pad_token_id=0, **settings)
    assert torch.equal(torch.stack(again.scores), torch.stack(plain.scores))


@pytest.mark.parametrize("skip", [False, True])
def test_a_transcoder_takes_the_place_of_its_target(model, skip):
    before = {"GPT2LMHeadModel": "transformer.h.1.ln_2"}.get(
        type(model).__name__, "model.layers.1.post_attention_layernorm"
    )
    stack = Stack.start(Dictionary(d_sae=24, activation=TopK(k=3), skip=skip), WIDTH, [0], target=Target(WIDTH))
    stack.decoder_bias.copy_(torch.linspace(-1, 1, WIDTH))
    if skip:
        stack.skip.copy_(torch.randn(1, WIDTH, WIDTH))
    mlp = block(model).mlp

    def expect(change):
        """The MLP by hand, from what it is given."""
        handle = mlp.register_forward_hook(lambda module, given, y: change(given[0], y))
        logits = logits_of(model)
        handle.remove()
        return logits.detach()

    def predicted(x):
        rows = x.flatten(0, 1)
        return stack.decode(stack.encode(rows), rows)[0].view_as(x)

    def without(x, y):
        return y - dense_codes(stack, x)[..., feature, None] * stack.decoder[0, feature]

    plain, replaced = logits_of(model).detach(), expect(lambda x, y: predicted(x))
    with splice(model, stack, before, "blocks.1.hook_mlp_out") as spliced:
        torch.testing.assert_close(logits_of(model), replaced, rtol=1e-4, atol=1e-5)
        feature = int(spliced.codes.sum((0, 1)).argmax())
    edited = expect(without)
    with splice(model, stack, before, "blocks.1.hook_mlp_out", keep_error=True) as spliced:
        torch.testing.assert_close(logits_of(model), plain)
        spliced.ablate(feature)
        torch.testing.assert_close(logits_of(model), edited, rtol=1e-4, atol=1e-5)
    with (
        splice(model, stack, SITE, "blocks.0.hook_mlp_out"),
        pytest.raises(UserError, match=r"before 'blocks.1.hook_r"),
    ):
        logits_of(model)


def hooks_of(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_nothing_is_left_behind_also_after_an_error(model):
    plain, names = logits_of(model), set(model.state_dict())
    asked_for = [parameter.requires_grad for parameter in model.parameters()]
    with splice(model, dictionary(), SITE) as spliced:
        assert hooks_of(model) == 1
        spliced.attribute(logits_of(model)[0, 0, 0])
    with pytest.raises(ZeroDivisionError), splice(model, dictionary(), "blocks.1.attn.hook_z"):
        _ = logits_of(model)[0, 0, 0] + 1 / 0
    with pytest.raises(UserError, match="takes 7 dimensions"), splice(model, dictionary(width=7), SITE):
        logits_of(model)
    with pytest.raises(UserError, match="feature 24 was to be"), splice(model, dictionary(), SITE) as failed:
        failed.add({24: 1.0})
    assert hooks_of(model) == 0
    assert torch.equal(logits_of(model), plain)
    assert set(model.state_dict()) == names
    assert [parameter.requires_grad for parameter in model.parameters()] == asked_for
    assert all(parameter.grad is None for parameter in model.parameters())
    assert spliced.codes.shape == (2, 5, 24)  # may still be read


def test_masked_tokens_are_left_alone(model):
    stack, mask = dictionary(), torch.tensor([[False, True, True, False, True], [True, False, True, True, False]])

    def change(x):
        made = stack.decode(stack.encode(x.flatten(0, 1)))[0].view_as(x)
        return torch.where(mask[..., None], made, x)

    with by_hand(model, change):
        expected = logits_of(model)
    with splice(model, stack, SITE) as spliced:
        spliced.mask = mask
        torch.testing.assert_close(logits_of(model), expected)
        assert not spliced.codes[~mask].any()
        assert (spliced.codes[mask] != 0).sum() == 3 * mask.sum()
        assert not spliced.attribute(logits_of(model)[0, -1, 3])[~mask].any()
        spliced.mask = mask[:, :3]
        with pytest.raises(UserError, match=r"mask has the shape \(2, 3\) and the tokens \(2, 5\)"):
            logits_of(model)


def test_heads_side_by_side_are_a_site(model):
    stack, proj = dictionary(), block(model).attn.c_proj if hasattr(block(model), "attn") else None
    proj = proj or block(model).self_attn.o_proj

    def change(module, given):
        (z,) = given
        codes = dense_codes(stack, z)
        return (z - codes[..., 4, None] * stack.decoder[0, 4],)

    handle = proj.register_forward_pre_hook(change)
    expected = logits_of(model)
    handle.remove()
    with splice(model, stack, "blocks.1.attn.hook_z", keep_error=True) as spliced:
        spliced.ablate(4)
        torch.testing.assert_close(logits_of(model), expected, rtol=1e-4, atol=1e-5)


def test_a_model_in_bfloat16_stays_in_it(model):
    model.to(torch.bfloat16)
    plain = logits_of(model)
    with splice(model, dictionary(), SITE, keep_error=True) as spliced:
        found = logits_of(model)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, plain)
        assert spliced.codes.dtype == torch.float32
        assert spliced.attribute(found[0, -1, 3].float()).any()


@pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
def test_our_own_models_at_every_site(settings):
    """Against the edits of the stacked form."""
    member, model = start(settings).member(0), start(settings).module(0)
    everywhere = torch.arange(TOKENS.shape[1]).expand_as(TOKENS)
    for site in settings.sites():
        rows = token_rows(member.forward(TOKENS, [site]).recorded[site])
        stack = dictionary(width=rows.shape[-1])

        def edited(x, stack=stack):
            return x - 2 * dense_codes(stack, x)[..., 5, None] * stack.decoder[0, 5]

        output = member.forward(TOKENS, edit={site: edit_rows(edited)})
        expected = member.read(output, everywhere)[0]
        with splice(model, stack, site, keep_error=True) as spliced:
            spliced.scale({5: -1.0})
            torch.testing.assert_close(model(TOKENS), expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(spliced.codes, dense_codes(stack, rows[0]), rtol=1e-4, atol=1e-4)
    assert hooks_of(model) == 0


def test_our_own_models_generate_and_attribute_with_a_dictionary_in_place():
    model = Model(Transformer(d_model=8, heads=2, d_ff=8, layers=1), vocabulary=9, length=6)
    stack, prompt = dictionary(width=8), torch.tensor([[3, 1]])
    with splice(model, stack, "blocks.0.attn.hook_z", keep_error=True) as spliced:
        effects = spliced.attribute(model(prompt)[0, -1, 4])
        assert effects.any()
        spliced.add({2: 50.0})
        found = model.generate(prompt, 6)
    row = stack.decoder[0, 2].unflatten(-1, (2, 4))[:, None]  # head, token, dimension
    with model.hooks([("blocks.0.attn.hook_z", lambda z, hook: z + 50 * row)]):
        assert torch.equal(found, model.generate(prompt, 6))


def test_the_quick_and_the_readable_encoder_are_asked_for_the_same():
    """Lists where nothing wants gradients, dense products where something does."""
    x, stack = torch.randn(200, WIDTH), dictionary(TopK(k=3), d_sae=64)
    assert encode(stack, x).features is not None
    for rows in (x, x.clone().requires_grad_()):
        spliced = Spliced(stack)
        spliced.add({3: 2.0, 60: -1.0})
        spliced.scale({3: 0.5})
        codes = dense_codes(stack, x)
        codes[:, 3] = 0.5 * codes[:, 3] + 2
        codes[:, 60] -= 1
        torch.testing.assert_close(spliced(rows), codes @ stack.decoder[0])


def test_what_cannot_be_spliced_is_refused(model):
    two = Stack.start(Dictionary(d_sae=8), WIDTH, [0, 1])
    transcoder = Stack.start(Dictionary(d_sae=8), WIDTH, [0], target=Target(WIDTH))
    crosscoder = replace(dictionary(), sites=torch.tensor([[6, 6]]))
    cases = [
        (model, two, SITE, None, "a stack of 2 dictionaries"),
        (model, crosscoder, SITE, None, "a crosscoder was to be spliced"),
        (model, transcoder, SITE, None, "a transcoder was to be spliced without a target"),
        (model, dictionary(), SITE, SITE, "an autoencoder was to be spliced with the target"),
        (model, dictionary(), "blocks.1.hook_resid_pst", None, "has no site 'blocks.1.hook_resid_pst'; did you mean"),
        (model, dictionary(), "", None, "has no site ''"),
        (start(ALL["causal"]), dictionary(), SITE, None, r"accepted: one of them as a module, models.module\(0\)"),
        (start(ALL["causal"]).module(0), dictionary(), "blocks.1", None, "Model has no site 'blocks.1'"),
    ]
    for spliced_into, stack, site, target, said in cases:
        with pytest.raises(UserError, match=said), splice(spliced_into, stack, site, target):
            pass
    assert hooks_of(model) == 0


def test_what_cannot_be_attributed_or_read_is_refused(model):
    with splice(model, dictionary(), SITE) as spliced:
        with pytest.raises(UserError, match="no run of the model came to the site yet"):
            _ = spliced.codes
        with torch.no_grad():
            logits = logits_of(model)
        with pytest.raises(UserError, match="without gradients was to be attributed"):
            spliced.attribute(logits[0, 0, 0])
        first = logits_of(model)
        with pytest.raises(UserError, match=r"shape \(20,\) with gradients"):
            spliced.attribute(first[0, 0])
        logits_of(model)
        with pytest.raises(UserError, match="does not depend on the model's last run"):
            spliced.attribute(first[0, 0, 0])
