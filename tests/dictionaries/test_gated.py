"""Gated against its paper's pseudo-code in numpy, and its gradients against stop-gradients put in by hand."""

import numpy as np
import pytest
import torch

from unbraid.dictionaries import Dictionary, Gated, Stack
from unbraid.dictionaries.mechanisms import Signals, Sparsity
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.step import State, reconstruction_loss, rule_costs, run_forward

SIZES = {"encoder": (2, 6, 5), "decoder": (2, 6, 5), "pre_bias": (2, 5)}


@pytest.fixture
def stack(rng):
    start = Stack.start(Dictionary(d_sae=6, activation=Gated(), pre_bias=True), 5, [0, 1])
    stack = start.with_parameters(
        {name: 0.5 * torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    )
    stack.normalize()
    return stack


def by_hand(p, x):
    """Gate, magnitude and codes of every member, as the paper's pseudo-code has them."""
    product = np.einsum("mbd,mfd->mbf", x - p["pre_bias"][:, None], p["encoder"])
    gate = product + p["encoder_bias"][:, None]
    magnitude = np.maximum(product * np.exp(p["gain"])[:, None] + p["magnitude_bias"][:, None], 0)
    return gate, magnitude, (gate > 0) * magnitude


def test_the_gate_decides_whether_and_the_magnitude_how_strongly(stack, rng):
    x = rng.standard_normal((9, 5))
    gate, _, codes = by_hand({name: t.numpy() for name, t in stack.parameters().items()}, x)
    fired = stack.activation.fire(stack.pre_activations(torch.from_numpy(x)), stack.tensors())
    np.testing.assert_allclose(stack.encode(torch.from_numpy(x)).to_dense().numpy(), codes, atol=1e-12)
    np.testing.assert_allclose(fired.codes.to_dense().numpy(), codes, atol=1e-12)
    np.testing.assert_allclose(fired.counted.numpy(), np.maximum(gate, 0).sum(-1))


@pytest.mark.parametrize("form", ["sum_square", "mean_square"])
def test_costs_and_gradients_are_the_papers(stack, rng, form):
    x, training = torch.from_numpy(rng.standard_normal((9, 5))), Training(reconstruction_loss=form)
    ours = stack.requires_grad_copy()
    forward = run_forward(ours, x, {}, Signals())
    terms = [
        reconstruction_loss(forward, training),
        rule_costs(forward, ours, training, State(stack, Adam.start(stack.parameters()), {}))["auxiliary"],
        Sparsity(weight=0.3).penalty(forward, {}, ours, Signals()),
    ]

    p = {name: t.clone().requires_grad_() for name, t in stack.parameters().items()}
    product = torch.einsum("mbd,mfd->mbf", x - p["pre_bias"][:, None], p["encoder"])
    gate = product + p["encoder_bias"][:, None]
    magnitude = (product * p["gain"].exp()[:, None] + p["magnitude_bias"][:, None]).relu()
    through = (gate > 0) * magnitude @ p["decoder"] + p["pre_bias"][:, None]
    frozen = gate.relu() @ p["decoder"].detach() + p["pre_bias"].detach()[:, None]
    divisor = 9 * (5 if form == "mean_square" else 1)
    theirs = [
        (through - x).square().sum((1, 2)) / divisor,
        (frozen - x).square().sum((1, 2)) / divisor,
        0.3 * gate.relu().sum((1, 2)) / 9,
    ]
    for one, other in zip(terms, theirs, strict=True):
        torch.testing.assert_close(one, other)
    names = list(p)
    mine = torch.autograd.grad(sum(terms).sum(), [ours.parameters()[name] for name in names])
    paper = torch.autograd.grad(sum(theirs).sum(), [p[name] for name in names])
    for name, one, other in zip(names, mine, paper, strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_it_starts_as_relu(rng):
    x = torch.from_numpy(rng.standard_normal((9, 5)).astype(np.float32))
    gated = Stack.start(Dictionary(d_sae=6, activation=Gated()), 5, [0, 1])
    relu = Stack.start(Dictionary(d_sae=6), 5, [0, 1])
    torch.testing.assert_close(gated.encode(x).to_dense(), relu.encode(x).to_dense())
