"""Teaching: company does not matter, a stopped teaching goes on to the same bits, and bad numbers stop it in time."""

import numpy as np
import pytest
import torch

from tests.training.recall import Recall
from unbraid.axes import Float, Tensor
from unbraid.config import check
from unbraid.constraints import Constraint
from unbraid.errors import NotFinite, Refusal
from unbraid.members import across
from unbraid.models import Transformer, start_models
from unbraid.training.teaching import Pupils, Teaching, answer_loss, learn, teach

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
    return across([Teaching(learning_rate=rate, **{**common, **changes}) for rate in rates])


def loud(weights):
    return {"loud": across([Loud(weight=weight, layers="all") for weight in weights])}


def begin(settings, seeds, dtype=torch.float64):
    models = Pupils.start(settings, WORLD, seeds).models
    return Pupils.of(models.with_parameters({name: p.to(dtype) for name, p in models.parameters().items()}))


@over_shapes
def test_company_does_not_matter(settings):
    """A member among others with other seeds, rates and weights ends where it ends alone."""
    together, alone = begin(settings, [7, 4, 1]), begin(settings, [4])
    among = list(teach(together, WORLD, teaching([0.05, 0.02, 0.01]), loud([0.0, 0.5, 3.0])))
    own = list(teach(alone, WORLD, teaching([0.02]), loud([0.5])))
    for name, tensor in alone.tensors().items():
        torch.testing.assert_close(together.tensors()[name][1:2], tensor, rtol=0, atol=1e-9, msg=name)
    for lesson, same in zip(among, own, strict=True):
        assert lesson.terms.keys() == same.terms.keys() == {"answers", "loud"}
        torch.testing.assert_close(lesson.terms["loud"][1:2], same.terms["loud"])
        torch.testing.assert_close(lesson.accuracy[1:2], same.accuracy)
    assert (together.weights.row[0] - together.weights.row[1]).abs().max() > 1e-2


@over_shapes
def test_a_stopped_teaching_goes_on_to_the_same_bits(settings):
    settled = teaching([0.02, 0.01])
    whole, first = begin(settings, [0, 1], torch.float32), begin(settings, [0, 1], torch.float32)
    lessons = list(teach(whole, WORLD, settled, loud([0.1, 0.2])))
    for _ in zip(range(5), teach(first, WORLD, settled, loud([0.1, 0.2])), strict=False):
        pass
    saved = {name: tensor.clone() for name, tensor in first.tensors().items()}
    again = Pupils.start(settings, WORLD, [0, 1])
    for name, tensor in again.tensors().items():
        tensor.copy_(saved[name])
    again.step = first.step
    rest = list(teach(again, WORLD, settled, loud([0.1, 0.2])))
    assert first.step == 5
    assert len(rest) == 7
    assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in whole.tensors().items())
    assert torch.equal(rest[-1].terms["answers"], lessons[-1].terms["answers"])


def test_one_step_by_hand():
    """One step of torch's AdamW on the gradient of all costs, clipped; warm-up of one step halves the rate."""
    pupils, batch = begin(SHAPES["causal"], [3]), WORLD.batch(0, 9)
    leaves = pupils.models.leaves()
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
    lesson = learn(pupils, batch, settled, {"loud": across([Loud(weight=2.0)])})
    for name, p in named.items():
        torch.testing.assert_close(pupils.models.weights[name], p.detach(), rtol=0, atol=1e-7, msg=name)
    torch.testing.assert_close(lesson.terms["answers"], loss.detach()[None])
    assert lesson.accuracy == (logits[0, :, 0].argmax(-1) == batch.answers[:, 0]).float().mean()


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
    pupils = Pupils.start(Transformer(d_model=16, heads=2, d_ff=32), WORLD, [0, 1])
    for _ in teach(pupils, WORLD, teaching([5e-3, 5e-3], steps=250, batch=48, clip=1.0, weight_decay=0.01), {}):
        pass
    test = WORLD.batch(0, 300, "test")
    logits = pupils.models.read(pupils.models.forward(test.tokens), test.asked)
    assert ((logits.argmax(-1) == test.answers).float().mean((1, 2)) > 0.97).all()


def test_what_is_not_finite_stops_before_anything_changes():
    pupils = begin(SHAPES["causal"], [0, 1])
    pupils.models.weights["answer.bias"][1, 0] = torch.inf
    before = {name: tensor.clone() for name, tensor in pupils.tensors().items()}
    with pytest.raises(NotFinite, match="loss term 'answers' of member 1 is not finite at step 0"):
        next(teach(pupils, WORLD, teaching([0.1, 0.1]), {}))
    assert all(torch.equal(tensor, before[name]) for name, tensor in pupils.tensors().items())
    assert pupils.step == 0


def test_what_cannot_be_is_refused_before_the_first_step():
    pupils = Pupils.of(start_models(SHAPES["causal"], 7, 8, 2, [0]))
    with pytest.raises(Refusal, match="asked for layer 2 of a model of 2 layers"):
        next(teach(pupils, WORLD, Teaching(), {"loud": Loud(layers=(0, 2))}))
    with pytest.raises(Refusal, match="do not fit in 5 steps"):
        check(Teaching, {"steps": 5, "warmup_steps": 4, "decay_steps": 2}, "teaching")


def test_a_lesson_tells_the_length_of_the_gradient_before_it_is_clipped():
    pupils, batch = begin(SHAPES["causal"], [0, 1]), WORLD.batch(0, 9)
    leaves = pupils.models.leaves()
    loss = answer_loss(leaves.read(leaves.forward(batch.tokens), batch.asked), batch.answers)
    gradients = torch.autograd.grad(loss.sum(), list(leaves.parameters().values()))
    expected = torch.cat([gradient.flatten(1) for gradient in gradients], 1).norm(dim=1)
    lesson = learn(pupils, batch, teaching([1e-2, 1e-2], clip=1e-3), {})
    torch.testing.assert_close(lesson.length, expected)


def test_steps_with_long_gradients_are_counted_member_by_member(monkeypatch):
    monkeypatch.setattr("unbraid.training.teaching.EXPLOSION", 1.0)
    pupils = begin(SHAPES["causal"], [0, 1])
    settings, weights = teaching([1e-2, 1e-2], steps=5, warmup_steps=0), loud([0.0, 1e4])
    lengths = torch.stack([lesson.length for lesson in teach(pupils, WORLD, settings, weights)])
    assert pupils.explosions.tolist() == (lengths > 1).sum(0).tolist()
    assert pupils.explosions[1] == 5
    assert "explosions" in pupils.tensors()
