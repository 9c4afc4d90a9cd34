"""Reduced precision: products and their gradients stay near float32's, all else is float32, dictionaries recover."""

from functools import partial

import pytest
import torch

import unbraid as ub
from unbraid.devices import product
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.models import ModelTraining
from unbraid.models.training import ModelState, train_model
from unbraid.worlds.stories import Stories

PRECISIONS = ["bfloat16", "float16"]
SLOW = partial(pytest.param, marks=pytest.mark.slow)
EPSILON = {"bfloat16": 2**-8, "float16": 2**-11}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_products_and_gradients_are_near_whatever_their_size(precision, size):
    """In units of Σ |a| |b|, which is what rounding the operands and the result can change a product by."""
    rng = torch.Generator().manual_seed(0)
    a, b, g = (torch.randn(*shape, generator=rng) * size for shape in ((2, 5, 40), (2, 40, 7), (2, 5, 7)))
    a.requires_grad_(), b.requires_grad_()
    made = product(a, b, precision)
    in_a, in_b = torch.autograd.grad(made, [a, b], g)
    for found, first, second in ((made, a, b), (in_a, g, b.mT), (in_b, a.mT, g)):
        assert found.dtype == torch.float32
        exact = first.detach().double() @ second.detach().double()
        room = first.detach().abs().double() @ second.detach().abs().double()
        assert ((found.double() - exact).abs() <= 3 * EPSILON[precision] * room).all()


def test_float32_is_the_product_itself():
    a, b = torch.randn(1, 3, 4), torch.randn(1, 4, 2)
    assert torch.equal(product(a, b, "float32"), a @ b)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_company_does_not_matter_to_its_scale(precision):
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 2)
    a[1] *= 1e6
    assert torch.equal(product(a, b, precision)[:1], product(a[:1], b[:1], precision))


WORLD = ub.Superposition(dimensions=16, n_features=24, active=2.0)
TRAINING = ub.Training(steps=400, batch=128, learning_rate=1e-2)


def recovered(rule, precision):
    dictionary = ub.Dictionary(d_sae=24, activation=rule)
    stack = ub.fit(WORLD, dictionary, ASKED[type(rule)], TRAINING, [0, 1], precision=precision)
    assert {tensor.dtype for tensor in stack.parameters().values()} == {torch.float32}
    assert stack.precision == precision
    return ub.score(stack, WORLD, samples=2048).values["mmcs"].mean().item()


ASKED = {ub.Relu: [ub.Sparsity(weight=0.15)], ub.TopK: [], ub.JumpRelu: [ub.Sparsity(weight=0.05)]}


@pytest.mark.parametrize(
    "rule", [SLOW(ub.Relu()), ub.TopK(k=3), SLOW(ub.JumpRelu(threshold=0.3))], ids=["relu", "topk", "jumprelu"]
)
def test_a_dictionary_is_recovered_as_in_float32(rule):
    plain = recovered(rule, "float32")
    assert plain > 0.7
    for precision in PRECISIONS:
        assert recovered(rule, precision) == pytest.approx(plain, abs=0.02), precision


@pytest.mark.parametrize("precision", PRECISIONS)
def test_models_learn_as_in_float32_and_keep_float32(precision):
    world, training = Stories(), stack_configs([ModelTraining(steps=6, batch=16)])
    losses = {}
    for asked in ("float32", precision):
        state = ModelState.start(ub.Transformer(d_model=16, heads=2, d_ff=32), world, [0], precision=asked)
        outputs = list(train_model(state, world, training, {"orthogonality": ub.Orthogonality()}))
        losses[asked] = outputs[-1].terms["answers"].item()
        assert {tensor.dtype for tensor in state.tensors().values()} <= {torch.float32, torch.int64}
        batch = world.batch(0, 4)
        output = state.models.forward(batch.tokens, ["blocks.0.hook_resid_post"])
        assert output.recorded["blocks.0.hook_resid_post"].dtype == output.resid.dtype == torch.float32
    assert losses[precision] != losses["float32"]
    assert losses[precision] == pytest.approx(losses["float32"], rel=0.02)


def test_a_precision_that_is_none_is_refused(capsys):
    from unbraid import cli

    with pytest.raises(UserError, match="accepted: float32, bfloat16, float16"):
        cli.app(["selfcheck", "--precision", "float8", "--device", "cpu"])
