"""Training models: company does not matter, a stopped training goes on to the same bits, bad numbers stop it soon."""

import numpy as np
import pytest
import torch

from unbraid.axes import Float, Tensor
from unbraid.battery.stories import Recall
from unbraid.config import check
from unbraid.errors import NotFinite, UserError
from unbraid.members import stack_configs
from unbraid.models import Transformer, start_models
from unbraid.models.constraints import Constraint
from unbraid.models.training import ModelState, ModelTraining, answer_loss, train_model, train_step

WORLD = Recall()
SHAPES = {
    "causal": Transformer(d_model=8, heads=2, d_ff=12),
    "dropping": Transformer(d_model=8, heads=2, d_ff=12, causal=False, readout="mean", dropout=0.2),
}
over_shapes = pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)


class Loud(Constraint):
    """A cost on what heads read, to have one."""

    def cost(self, output: Float[Tensor, "m b h t e"]) -> Float[Tensor, "m"]:
        return output.square().mean((1, 2, 3, 4))


def teaching(rates, **changes):
    common = {"steps": 12, "batch": 9, "warmup_steps": 3, "decay_steps": 2, "weight_decay": 0.1, "clip": 0.5}
    return stack_configs([ModelTraining(learning_rate=rate, **{**common, **changes}) for rate in rates])


def loud(weights):
    return {"loud": stack_configs([Loud(weight=weight, layers="all") for weight in weights])}


def begin(settings, seeds, dtype=torch.float64):
    models = ModelState.start(settings, WORLD, seeds).models
    return ModelState.of(models.with_parameters({name: p.to(dtype) for name, p in models.parameters().items()}))


@over_shapes
def test_company_does_not_matter(settings):
    """A member among others with other seeds, rates and weights ends where it ends alone."""
    together, alone = begin(settings, [7, 4, 1]), begin(settings, [4])
    among = list(train_model(together, WORLD, teaching([0.05, 0.02, 0.01]), loud([0.0, 0.5, 3.0])))
    own = list(train_model(alone, WORLD, teaching([0.02]), loud([0.5])))
    for name, tensor in alone.tensors().items():
        torch.testing.assert_close(together.tensors()[name][1:2], tensor, rtol=0, atol=1e-9, msg=name)
    for output, same in zip(among, own, strict=True):
        assert output.terms.keys() == same.terms.keys() == {"answers", "loud"}
        torch.testing.assert_close(output.terms["loud"][1:2], same.terms["loud"])
        torch.testing.assert_close(output.accuracy[1:2], same.accuracy)
    assert (together.weights.row[0] - together.weights.row[1]).abs().max() > 1e-2


@over_shapes
def test_a_stopped_teaching_goes_on_to_the_same_bits(settings):
    settled = teaching([0.02, 0.01])
    whole, first = begin(settings, [0, 1], torch.float32), begin(settings, [0, 1], torch.float32)
    outputs = list(train_model(whole, WORLD, settled, loud([0.1, 0.2])))
    for _ in zip(range(5), train_model(first, WORLD, settled, loud([0.1, 0.2])), strict=False):
        pass
    saved = {name: tensor.clone() for name, tensor in first.tensors().items()}
    again = ModelState.start(settings, WORLD, [0, 1])
    for name, tensor in again.tensors().items():
        tensor.copy_(saved[name])
    again.step = first.step
    rest = list(train_model(again, WORLD, settled, loud([0.1, 0.2])))
    assert first.step == 5
    assert len(rest) == 7
    assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in whole.tensors().items())
    assert torch.equal(rest[-1].terms["answers"], outputs[-1].terms["answers"])


def test_one_step_by_hand():
    """One step of torch's AdamW on the gradient of all costs, clipped; warm-up of one step halves the rate."""
    state, batch = begin(SHAPES["causal"], [3]), WORLD.batch(0, 9)
    leaves = state.models.requires_grad_copy()
    passed = leaves.forward(batch.tokens, ["blocks.1.attn.hook_z"])
    logits = leaves.read(passed, batch.asked)
    loss = torch.nn.functional.cross_entropy(logits[0, :, 0], batch.answers[:, 0])
    (loss + 2.0 * passed.recorded["blocks.1.attn.hook_z"].square().mean()).backward()
    named = {name: p.detach().clone().requires_grad_() for name, p in leaves.parameters().items()}
    for name, p in leaves.parameters().items():
        named[name].grad = p.grad
    torch.nn.utils.clip_grad_norm_(named.values(), 0.3)
    torch.optim.AdamW(named.values(), lr=0.05, weight_decay=0.2).step()
    settled = teaching([0.1], warmup_steps=1, clip=0.3, weight_decay=0.2)
    output = train_step(state, batch, settled, {"loud": stack_configs([Loud(weight=2.0)])})
    for name, p in named.items():
        torch.testing.assert_close(state.models.weights[name], p.detach(), rtol=0, atol=1e-7, msg=name)
    torch.testing.assert_close(output.terms["answers"], loss.detach()[None])
    assert output.accuracy == (logits[0, :, 0].argmax(-1) == batch.answers[:, 0]).float().mean()


def test_the_loss_of_answers_is_the_mean_over_questions(rng):
    logits, answers = rng.standard_normal((2, 3, 4, 5)), rng.integers(5, size=(3, 4))
    expected = np.zeros(2)
    for m, b, q in np.ndindex(2, 3, 4):
        row = logits[m, b, q]
        expected[m] += (np.log(np.exp(row).sum()) - row[answers[b, q]]) / 12
    ours = answer_loss(torch.from_numpy(logits), torch.from_numpy(answers))
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-12)


def test_pupils_learn_to_answer_and_not_by_chance():
    """Half of the answers are x; a taught member is right nearly always, on stories it has never seen."""
    state = ModelState.start(Transformer(d_model=16, heads=2, d_ff=32), WORLD, [0, 1])
    for _ in train_model(state, WORLD, teaching([5e-3, 5e-3], steps=250, batch=48, clip=1.0, weight_decay=0.01), {}):
        pass
    test = WORLD.batch(0, 300, "test")
    logits = state.models.read(state.models.forward(test.tokens), test.asked)
    assert ((logits.argmax(-1) == test.answers).float().mean((1, 2)) > 0.97).all()


def test_what_is_not_finite_stops_before_anything_changes():
    state = begin(SHAPES["causal"], [0, 1])
    state.models.weights["answer.bias"][1, 0] = torch.inf
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    with pytest.raises(NotFinite, match="loss term 'answers' of member 1 is not finite at step 0"):
        next(train_model(state, WORLD, teaching([0.1, 0.1]), {}))
    assert all(torch.equal(tensor, before[name]) for name, tensor in state.tensors().items())
    assert state.step == 0


def test_what_cannot_be_is_refused_before_the_first_step():
    state = ModelState.of(start_models(SHAPES["causal"], 7, 8, 2, [0]))
    with pytest.raises(UserError, match="asked for layer 2 of a model of 2 layers"):
        next(train_model(state, WORLD, ModelTraining(), {"loud": Loud(layers=(0, 2))}))
    with pytest.raises(UserError, match="do not fit in 5 steps"):
        check(ModelTraining, {"steps": 5, "warmup_steps": 4, "decay_steps": 2}, "teaching")


def test_a_lesson_tells_the_length_of_the_gradient_before_it_is_clipped():
    state, batch = begin(SHAPES["causal"], [0, 1]), WORLD.batch(0, 9)
    leaves = state.models.requires_grad_copy()
    loss = answer_loss(leaves.read(leaves.forward(batch.tokens), batch.asked), batch.answers)
    gradients = torch.autograd.grad(loss.sum(), list(leaves.parameters().values()))
    expected = torch.cat([gradient.flatten(1) for gradient in gradients], 1).norm(dim=1)
    output = train_step(state, batch, teaching([1e-2, 1e-2], clip=1e-3), {})
    torch.testing.assert_close(output.gradient_norm, expected)


def test_steps_with_long_gradients_are_counted_member_by_member(monkeypatch):
    monkeypatch.setattr("unbraid.models.training.GRADIENT_SPIKE", 1.0)
    state = begin(SHAPES["causal"], [0, 1])
    settings, weights = teaching([1e-2, 1e-2], steps=5, warmup_steps=0), loud([0.0, 1e4])
    lengths = torch.stack([output.gradient_norm for output in train_model(state, WORLD, settings, weights)])
    assert state.gradient_spikes.tolist() == (lengths > 1).sum(0).tolist()
    assert state.gradient_spikes[1] == 5
    torch.testing.assert_close(state.gradient_peak, lengths.amax(0))
    assert {"gradient_spikes", "gradient_peak"} <= state.tensors().keys()
