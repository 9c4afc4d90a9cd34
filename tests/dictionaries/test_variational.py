"""The variational dictionary: its evidence bound in numpy, its draws against their distribution, its codes."""

import numpy as np
import pytest
import torch
from scipy import stats

from unbraid.dictionaries import Dictionary, Stack, Variational
from unbraid.dictionaries.mechanisms import Signals
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.step import State, rule_costs, run_forward, step
from unbraid.dictionaries.variational import gate_divergence
from unbraid.randomness import stream

RULE = Variational(weight=0.3, rate=0.2, scale=0.7, deviation=0.4, temperature=0.6, sharpness=2.0)


def general_position(rule, rng, features=6, seeds=(3, 4)):
    start = Stack.start(Dictionary(d_sae=features, activation=rule), 5, seeds)
    return start.with_parameters(
        {name: 0.5 * torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    )


def posterior(stack, x):
    p = {name: t.numpy() for name, t in stack.tensors().items()}
    product = np.einsum("bd,mfd->mbf", x, p["encoder"])
    logits = 2.0 * (product + p["encoder_bias"][:, None])
    mean = np.maximum(product * np.exp(p["gain"])[:, None] + p["magnitude_bias"][:, None], 0)
    return logits, 1 / (1 + np.exp(-logits)), mean, np.exp(p["log_variance"] / 2)[:, None]


def test_used_it_is_the_expected_code_where_firing_is_likelier_than_not(rng):
    stack, x = general_position(RULE, rng), rng.standard_normal((9, 5))
    _, q, mean, _ = posterior(stack, x)
    codes = stack.encode(torch.from_numpy(x)).to_dense().numpy()
    np.testing.assert_allclose(codes, np.where(q > 0.5, q * mean, 0), atol=1e-12)
    np.testing.assert_allclose(stack.probabilities(torch.from_numpy(x)).numpy(), q, atol=1e-12)


def test_the_costs_are_the_evidence_bound_of_the_draw(rng):
    """-2σ² log of p(x, g, w)/q(g, w) with σ² = weight/2, up to the constant of the likelihood."""
    stack, x = general_position(RULE, rng), rng.standard_normal((9, 5))
    logits, q, mean, deviation = posterior(stack, x)
    forward = run_forward(stack, torch.from_numpy(x), {}, Signals())

    for member, seed in enumerate([3, 4]):
        draws = stream(seed, "noise", 0)
        normal = draws.standard_normal((9, 6), np.float32)
        uniform = draws.random((9, 6), np.float32)
        gate = 1 / (1 + np.exp(-(logits[member] + stats.logistic.ppf(uniform)) / 0.6))
        codes = gate * (mean[member] + deviation[member] * normal)
        np.testing.assert_allclose(forward.codes.to_dense()[member].numpy(), codes, atol=1e-5)

    bernoulli = q * np.log(q / 0.2) + (1 - q) * np.log((1 - q) / 0.8)
    slab = np.log(0.7 / deviation) + (deviation**2 + mean**2) / (2 * 0.7**2) - 0.5
    divergence = 0.3 * (bernoulli + q * slab).sum(-1).mean(-1)
    costs = rule_costs(forward, stack, Training(), State(stack, Adam.start(stack.parameters()), {}))
    np.testing.assert_allclose(costs["divergence"].numpy(), divergence)
    np.testing.assert_allclose(forward.counted().numpy(), q.sum(-1))


@pytest.mark.parametrize("logit", [-30.0, -2.0, 0.0, 5.0, 40.0])
def test_the_gates_divergence_is_exact_and_finite_at_the_ends(logit):
    q = float(stats.logistic.cdf(logit))
    found = float(gate_divergence(torch.tensor(logit, dtype=torch.float64), 0.1))
    assert found == pytest.approx(float(stats.entropy([q, 1 - q], [0.1, 0.9])), abs=1e-9)


def test_a_cold_gate_is_a_bernoulli_draw_with_the_posteriors_probability(rng):
    rule = RULE.model_copy(update={"temperature": 1e-4})
    pre = torch.full((1, 20_000, 1), 0.5, dtype=torch.float64)
    weights = {"encoder_bias": torch.zeros(1, 1), **rule.parameters(1, 1), **rule.memory([7])}
    weights["log_variance"] = torch.full((1, 1), -40.0)
    values = rule.fire(pre, weights).codes.to_dense() / 0.5
    assert float(values.mean()) == pytest.approx(1 / (1 + np.exp(-1.0)), abs=4 * 0.5 / 20_000**0.5)
    assert ((values < 0.01) | (values > 0.99)).double().mean() > 0.999


def test_every_step_draws_anew_and_every_member_its_own(rng):
    stack, x = general_position(RULE, rng, seeds=(3, 3)), torch.from_numpy(rng.standard_normal((9, 5)))
    once, again = (run_forward(stack, x, {}, Signals()) for _ in range(2))
    assert torch.equal(once.codes.values, again.codes.values)
    stack.remember(once.fired.memory)
    assert stack.memory["draws"].tolist() == [1, 1]
    assert not torch.equal(run_forward(stack, x, {}, Signals()).codes.values, once.codes.values)
    other = general_position(RULE, np.random.default_rng(0), seeds=(3, 5))
    assert torch.equal(other.memory["noise_seed"], torch.tensor([3, 5]))


def test_mechanisms_and_the_log_see_what_would_fire_and_not_the_relaxation(rng):
    x = torch.from_numpy(rng.standard_normal((32, 5)).astype(np.float32))
    state = State.start(Dictionary(d_sae=6, activation=RULE), 5, {}, [0])
    expected = state.stack.encode(x).l0()
    outcome = step(state, x, Training(), {})
    torch.testing.assert_close(outcome.l0, expected.double().mean(-1))
    assert float(expected.float().mean()) < 6


@pytest.mark.parametrize("slab", ["gaussian", "laplace", "horseshoe"])
def test_features_that_do_not_help_are_gated_off(slab, rng):
    """With nothing to explain, the posterior goes to the prior: gates to the rate, slabs to their prior."""
    rule = Variational(slab=slab, weight=0.5, rate=0.1, sharpness=1.0)
    x, state = torch.zeros(16, 5), State.start(Dictionary(d_sae=6, activation=rule), 5, {}, [0])
    for _ in range(60):
        step(state, x, Training(learning_rate=0.1), {})
    assert (state.stack.probabilities(x) <= 0.1).all()
