"""One model as a torch module has the numbers of the stacked form, and does what torch modules do."""

from copy import deepcopy

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.models.shapes import ALL, ASKED, GAUGES, SHAPES, TOKENS, start
from unbraid.errors import UserError
from unbraid.evaluation.text_models import continue_text
from unbraid.models import Model, Models, Transformer, start_models
from unbraid.models.module import HookPoint
from unbraid.models.training import ModelState, ModelTraining, answer_loss, train_model
from unbraid.worlds import Text

over_shapes = pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
REAL = TOKENS != 0
EVERYWHERE = torch.arange(TOKENS.shape[1]).expand_as(TOKENS)
MIDDLE = "blocks.0.hook_resid_post"


def logits_of(models: Models) -> torch.Tensor:
    return models.read(models.forward(TOKENS), EVERYWHERE)


@pytest.fixture
def model() -> Model:
    return start(SHAPES["near"]).module(1)


@pytest.fixture(scope="module")
def writer() -> Models:
    return start_models(Transformer(d_model=8, heads=2, layers=1, d_ff=8), 12, 6, 12, [3, 4])


@over_shapes
def test_logits_are_those_of_the_stacked_form(settings):
    models = start(settings)
    module = models.module(1)
    found = module(TOKENS)
    torch.testing.assert_close(found, logits_of(models.member(1))[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[REAL], logits_of(models)[1][REAL], rtol=1e-6, atol=3e-6)
    asked = models.member(1).read(models.member(1).forward(TOKENS), ASKED)[0]
    torch.testing.assert_close(module(TOKENS, ASKED), asked, rtol=1e-6, atol=1e-6)


@over_shapes
def test_there_and_back_no_bit_changes_and_no_weight_is_shared(settings):
    models = start(settings)
    member, module = models.member(2), models.module(2)
    back = module.stacked()
    assert (back.settings, back.length, back.seeds) == (member.settings, member.length, member.seeds)
    assert set(back.weights) == set(member.weights) == set(module.state_dict())
    assert all(torch.equal(back.weights[name], weight) for name, weight in member.weights.items())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    assert torch.equal(logits_of(back), logits_of(member))


@over_shapes
def test_a_model_of_a_configuration_is_the_member_of_that_seed(settings):
    module, member = Model(settings, 10, 8, classes=5, seed=1), start(settings).module(1)
    assert all(torch.equal(weight, member.state_dict()[name]) for name, weight in module.state_dict().items())
    assert module.training
    assert not member.training


@over_shapes
def test_gradients_are_those_of_the_stacked_form(settings):
    models, module = start(settings).member(1).requires_grad_copy(), start(settings).module(1)
    output = models.forward(TOKENS)
    answers = torch.tensor([[2, 3], [0, 1], [4, 4]])
    (answer_loss(models.read(output, ASKED), answers).sum() + sum(c.sum() for c in output.costs.values())).backward()
    logits, costs = module.run_with_costs(TOKENS, ASKED)
    assert costs.keys() == output.costs.keys()
    (cross_entropy(logits.flatten(0, 1), answers.flatten()) + sum(costs.values())).backward()
    for name, weight in module.weights.items():
        theirs = models.weights[name].grad
        if theirs is None:  # as frames, which scalar heads have no use for
            assert weight.grad is None
        else:
            torch.testing.assert_close(weight.grad, theirs[0], rtol=1e-5, atol=1e-7)


@over_shapes
def test_the_cache_is_what_the_stacked_form_records(settings):
    member, module = start(settings).member(0), start(settings).module(0)
    recorded = member.forward(TOKENS, settings.hooks()).recorded
    logits, cache = module.run_with_cache(TOKENS)
    assert cache.keys() == recorded.keys() == set(settings.hooks())
    for name, tensor in recorded.items():
        torch.testing.assert_close(cache[name], tensor[0], rtol=1e-6, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(logits[REAL], module(TOKENS)[REAL], rtol=0, atol=1e-5)
    some = module.run_with_cache(TOKENS, lambda name: name.endswith("attn.hook_z"))[1]
    assert list(some) == ["blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]
    assert list(module.run_with_cache(TOKENS, MIDDLE)[1]) == [MIDDLE]
    assert set(module.run_with_cache(TOKENS, [MIDDLE, "blocks.1.attn.hook_z"])[1]) == {MIDDLE, "blocks.1.attn.hook_z"}


@over_shapes
def test_a_hook_does_what_an_edit_of_the_stacked_form_does(settings):
    member, module = start(settings).member(0), start(settings).module(0)
    plain = module(TOKENS)
    for site in settings.sites():
        expected = member.read(member.forward(TOKENS, edit={site: lambda x: 0.5 * x + 1}), EVERYWHERE)[0]
        found = module.run_with_hooks(TOKENS, [(site, lambda x, hook: 0.5 * x + 1)])
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(module(TOKENS), plain)


def test_hooks_are_called_with_their_name_and_one_that_returns_nothing_changes_nothing(model: Model):
    seen = {}

    def look(activations, hook):
        seen[hook.name, hook.layer()] = activations.shape

    logits = model.run_with_hooks(TOKENS, [(lambda name: "pattern" in name, look), (MIDDLE, look)])
    assert seen == {
        ("blocks.0.attn.hook_pattern", 0): (3, 4, 6, 6),
        ("blocks.1.attn.hook_pattern", 1): (3, 4, 6, 6),
        (MIDDLE, 0): (3, 6, 8),
    }
    torch.testing.assert_close(logits, model(TOKENS))


def test_torchs_own_hooks_work_on_hook_points(model: Model):
    point = model.get_submodule(MIDDLE)
    assert point is model.blocks[0].hook_resid_post
    handle = point.register_forward_hook(lambda module, given, x: torch.zeros_like(x))
    expected = model.stacked().forward(TOKENS, edit={MIDDLE: torch.zeros_like})
    torch.testing.assert_close(model(TOKENS), model.stacked().read(expected, EVERYWHERE)[0])
    handle.remove()


def test_hooks_are_gone_after_an_error(model: Model):
    def fail(activations, hook):
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        model.run_with_hooks(TOKENS, [(MIDDLE, lambda x, hook: 2 * x), ("blocks.1.hook_mlp_out", fail)])
    with pytest.raises(UserError, match=r"no hook 'blocks.9'"):
        model.run_with_hooks(TOKENS, [(MIDDLE, fail), ("blocks.9", fail)])
    assert not any(point._forward_hooks for point in model.modules())
    torch.testing.assert_close(model(TOKENS), logits_of(model.stacked())[0], rtol=1e-6, atol=1e-6)


def test_what_cannot_be_replaced_or_is_not_there_is_refused(model: Model):
    with pytest.raises(UserError, match="hook_pattern, which can be looked at only"):
        model.run_with_hooks(TOKENS, [("blocks.0.attn.hook_pattern", lambda x, hook: x.flip(-1))])
    with pytest.raises(UserError, match=r"no hook 'blocks.0.hook_resid_pst'; did you mean 'blocks.0.hook_resid_post'"):
        model.run_with_cache(TOKENS, "blocks.0.hook_resid_pst")
    with pytest.raises(UserError, match=r"returned the shape \(1, 3, 6\)"):
        model.run_with_hooks(TOKENS, [(MIDDLE, lambda x, hook: x[..., 0])])


@pytest.mark.parametrize("kind", ["causal", "routed", "hopfield, memories", "gauge"])
def test_an_ordinary_optimiser_trains_it(kind):
    model = Model(ALL[kind], 10, 8, classes=5)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        optimiser.zero_grad()
        logits, costs = model.run_with_costs(TOKENS, ASKED)
        loss = cross_entropy(logits.flatten(0, 1), torch.tensor([2, 3, 0, 1, 4, 4])) + sum(costs.values())
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]
    assert losses[-1] < 0.7 * losses[0]


def test_adam_takes_the_step_that_stacked_training_takes():
    """AdamW without decay or clipping, from the same weights and batch."""
    world, settings = Text(context=8, validation=400), Transformer(d_model=8, heads=2, d_ff=8)
    state = ModelState.start(settings, world, [0])
    module = state.models.module(0)
    training = ModelTraining(steps=1, batch=4, learning_rate=1e-2, weight_decay=0.0, clip=None)
    batch = world.batch(0, 4)
    list(train_model(state, world, training, {}))
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-2)
    cross_entropy(module(batch.tokens, batch.asked).flatten(0, 1), batch.answers.flatten()).backward()
    optimiser.step()
    for name, weight in state.models.weights.items():
        torch.testing.assert_close(module.state_dict()[name], weight[0], rtol=1e-4, atol=1e-5)


def test_dropout_acts_in_training_mode_and_follows_torchs_seed():
    model = start(SHAPES["dropping"]).module(0)
    plain = model(TOKENS)
    assert torch.equal(model(TOKENS), plain)
    model.train()
    torch.manual_seed(3)
    first, second = model(TOKENS), model(TOKENS)
    torch.manual_seed(3)
    assert torch.equal(model(TOKENS), first)
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, plain)
    assert torch.equal(model.eval()(TOKENS), plain)


def test_states_are_saved_loaded_and_copied(model: Model):
    other = Model(SHAPES["near"], 10, 8, classes=5, seed=7)
    assert not torch.allclose(other.eval()(TOKENS), model(TOKENS))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(TOKENS), model(TOKENS))
    copied = deepcopy(model)
    with torch.no_grad():
        copied.embed.zero_()
    assert torch.equal(other(TOKENS), model(TOKENS))
    assert not torch.equal(copied(TOKENS), model(TOKENS))


@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
def test_bfloat16_is_near_float32(settings):
    model = start(settings).module(0)
    plain = model(TOKENS)[REAL]
    model.to(torch.bfloat16)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    found = model(TOKENS)[REAL]
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), plain, rtol=0, atol=0.1)


def test_a_gauge_model_says_why_it_does_not_run_in_bfloat16():
    for settings in GAUGES.values():
        with pytest.raises(UserError, match=r"in torch.bfloat16, in which covariances are not definite"):
            start(settings).module(0).to(torch.bfloat16)(TOKENS)


@over_shapes
def test_every_tensor_is_on_the_models_device(settings, monkeypatch):
    """On the device `meta` tensors have no numbers; what looks at numbers is left out, and a CPU tensor is refused."""
    monkeypatch.setattr(Models, "_check_tokens", lambda models, tokens: None)
    monkeypatch.setattr("unbraid.models.gauge.beliefs.definite_root", torch.linalg.cholesky)
    model = start(settings).module(0).to("meta").train()
    logits, cache = model.run_with_cache(TOKENS.to("meta"))
    assert {tensor.device.type for tensor in cache.values()} == {"meta"}
    model(TOKENS.to("meta")).sum().backward()
    assert logits.device.type == "meta"


def test_generation_at_temperature_0_is_the_likeliest_token_each_time(writer: Models):
    prompt = torch.tensor([[3, 1, 4], [9, 2, 6]])
    written, member = prompt, writer.member(0)
    for _ in range(7):  # past the longest sequence, whose beginning is then forgotten
        seen = written[:, -6:]
        logits = member.read(member.forward(seen), torch.full((2, 1), seen.shape[1] - 1))[0, :, 0]
        written = torch.cat([written, 1 + logits[:, 1:].argmax(-1, keepdim=True)], 1)
    assert torch.equal(writer.module(0).generate(prompt, 7), written)


def test_draws_follow_seeds_and_each_prompt_has_its_own(writer: Models):
    model, prompt = writer.module(0), torch.tensor([[3, 1], [3, 1]])
    one = model.generate(prompt, 20, temperature=1.0, seed=1)
    assert torch.equal(one, model.generate(prompt, 20, temperature=1.0, seed=1))
    assert not torch.equal(one, model.generate(prompt, 20, temperature=1.0, seed=2))
    assert not torch.equal(one[0], one[1])
    other = Model(model.settings, 12, 6, seed=9).eval()
    other.load_state_dict(model.state_dict())
    assert not torch.equal(one, other.generate(prompt, 20, temperature=1.0, seed=1))
    assert (one > 0).all()


def test_a_continued_text_is_what_the_module_generates():
    world = Text(context=8, validation=400)
    models = start_models(Transformer(d_model=8, heads=2, d_ff=8), len(world.vocabulary), 8, len(world.vocabulary), [5])
    prompt = torch.from_numpy(world.tokenized.tokenizer.encode("The ")).long()[None]
    written = models.module(0).generate(prompt, 6, temperature=1.0, seed=2)
    assert continue_text(models, world, "The ", 6, seed=2) == [
        world.tokenized.tokenizer.decode(written[0, 4:].tolist())
    ]


def test_hooks_act_on_every_generated_token(writer: Models):
    """With zeros as its last activations a model writes the token that its output bias likes best."""
    model = writer.module(0)
    site = "blocks.0.hook_resid_post"
    with model.hooks([(site, lambda x, hook: torch.zeros_like(x))]):
        written = model.generate(torch.tensor([[3, 1]]), 5)
    likeliest = 1 + int(model.state_dict()["answer.bias"][1:].argmax())
    assert written[0].tolist() == [3, 1] + 5 * [likeliest]


def test_what_cannot_write_on_is_refused(model: Model, writer: Models):
    with pytest.raises(UserError, match="one of 5 classes and reads 10 words"):
        model.generate(TOKENS[:1], 3)
    language = writer.module(0)
    for prompt in (torch.tensor([[3, 0]]), torch.zeros(1, 0, dtype=torch.long)):
        with pytest.raises(UserError, match="accepted: prompts of one length"):
            language.generate(prompt, 3)
    with pytest.raises(UserError, match="-1 tokens at temperature 0"):
        language.generate(TOKENS[:1, :2], -1)
    with pytest.raises(UserError, match="at temperature nan"):
        language.generate(TOKENS[:1, :2], 1, temperature=float("nan"))


def test_hook_points_are_modules_by_their_names(model: Model):
    points = {name for name, module in model.named_modules() if isinstance(module, HookPoint)}
    assert points == set(model.settings.hooks())
