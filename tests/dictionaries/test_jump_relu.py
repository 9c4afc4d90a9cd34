"""Jump-relu: its values and its pretended gradients against their closed form, written out in numpy."""

import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, JumpRelu, Stack
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.step import State, step

BANDWIDTH = 0.6


@pytest.fixture
def case(rng):
    pre, log_threshold = rng.standard_normal((2, 50, 7)), rng.standard_normal((2, 7)) - 1
    return pre, log_threshold, rng.standard_normal((2, 50, 7)), rng.standard_normal((2, 50))


def test_what_exceeds_its_own_threshold_fires(case):
    pre, log_threshold, _, _ = case
    expected = np.where(pre > np.exp(log_threshold)[:, None], pre, 0)
    weights = {"log_threshold": torch.from_numpy(log_threshold)}
    rule = JumpRelu(bandwidth=BANDWIDTH)
    fired = rule.fire(torch.from_numpy(pre), weights)
    assert np.array_equal(rule.codes(torch.from_numpy(pre), weights).to_dense().numpy(), expected)
    assert np.array_equal(fired.codes.to_dense().numpy(), expected)
    assert np.array_equal(fired.counted.numpy(), (expected != 0).sum(-1))


def test_gradients_are_the_papers_pseudo_derivatives(case):
    """Equations 11 and 12 of Rajamanoharan et al. 2024, for a cost Σ u·code + Σ w·L0."""
    pre, log_threshold, u, w = case
    leaves = torch.from_numpy(pre).requires_grad_(), torch.from_numpy(log_threshold).requires_grad_()
    fired = JumpRelu(bandwidth=BANDWIDTH).fire(leaves[0], {"log_threshold": leaves[1]})
    cost = (torch.from_numpy(u) * fired.codes.to_dense()).sum() + (torch.from_numpy(w) * fired.counted).sum()
    in_pre, in_log = torch.autograd.grad(cost, leaves)

    threshold = np.exp(log_threshold)[:, None]
    kernel = np.abs((pre - threshold) / BANDWIDTH) < 0.5
    assert 20 < kernel.sum() < kernel.size
    in_threshold = (u * -(threshold / BANDWIDTH) * kernel + w[..., None] * -(1 / BANDWIDTH) * kernel).sum(1)
    np.testing.assert_allclose(in_pre.numpy(), u * (pre > threshold))
    np.testing.assert_allclose(in_log.numpy(), in_threshold * threshold[:, 0], atol=1e-12)


def test_the_pretended_slope_of_how_many_fire_is_that_of_a_smooth_density(rng):
    """Averaged over z ~ N(0, 1), d E[H(z - θ)]/dθ = -φ(θ): the kernel estimates a density."""
    pre = torch.from_numpy(rng.standard_normal((1, 400_000, 1)))
    log_threshold = torch.tensor([[np.log(0.8)]], dtype=torch.float64, requires_grad=True)
    share = JumpRelu(bandwidth=0.1).fire(pre, {"log_threshold": log_threshold}).counted.mean()
    (slope,) = torch.autograd.grad(share, log_threshold)
    assert float(slope) / 0.8 == pytest.approx(-np.exp(-0.32) / np.sqrt(2 * np.pi), rel=0.02)


def test_a_threshold_next_to_nothing_is_relu(rng):
    pre = torch.from_numpy(rng.standard_normal((2, 9, 5)))
    rule = JumpRelu(threshold=1e-9)
    codes = rule.codes(pre, rule.parameters(2, 5))
    assert torch.equal(codes.to_dense(), Codes.dense(pre.relu()).to_dense())


def test_thresholds_start_as_set():
    stack = Stack.start(Dictionary(d_sae=4, activation=JumpRelu(threshold=0.25)), 3, [0, 1])
    np.testing.assert_allclose(stack.rule["log_threshold"].exp().numpy(), np.full((2, 4), 0.25), rtol=1e-6)


def test_the_sparsity_cost_counts_how_many_fire_and_raises_thresholds(rng):
    x = torch.from_numpy(rng.standard_normal((64, 5)).astype(np.float32))
    ends = []
    for weight in (0.0, 3.0):
        mechanisms = {"sparsity": Sparsity(weight=weight)}
        state = State.start(Dictionary(d_sae=6, activation=JumpRelu(bandwidth=0.5)), 5, mechanisms, [0])
        outcome = step(state, x, Training(learning_rate=0.01), mechanisms)
        assert float(outcome.terms["sparsity"]) == pytest.approx(weight * float(outcome.l0))
        ends.append(state.stack.rule["log_threshold"])
    assert (ends[1] > ends[0]).any()
    assert (ends[1] >= ends[0]).all()
