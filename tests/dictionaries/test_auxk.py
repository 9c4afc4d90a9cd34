"""AuxK against sums written out by hand, and what it is for: features that no longer fire come back."""

import numpy as np
import pytest
import torch

from unbraid.dictionaries import AuxK, BatchTopK, Dictionary, Stack, TopK
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Matryoshka, Mechanism, Reset, Signals
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance, inputs_of, train
from unbraid.dictionaries.training.step import State, auxk_cost, run_forward, step
from unbraid.worlds import Superposition

FEATURES, DIMENSIONS, SAMPLES = 10, 6, 9
DEAD = [[0, 3, 4, 7, 9], [2, 3]]
RULES = [TopK, BatchTopK]


def a_state(rule, pre_bias=False, dead=DEAD):
    """Two members in general position in float64, with these features dead."""
    rng = np.random.default_rng(3)
    stack = Stack.start(Dictionary(d_sae=FEATURES, activation=rule, pre_bias=pre_bias), DIMENSIONS, [0, 1])
    changed = {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in stack.parameters().items()}
    stack = stack.with_parameters(changed)
    stack.normalize()
    state = State(stack, Adam.start(stack.parameters()), {})
    for member, features in enumerate(dead):
        state.since_fired[member, features] = 1000
    return state


def by_hand(state, x, k, weight, divisor):
    """The cost and its gradients in encoder, bias, decoder and pre-bias, sample by sample and feature by feature."""
    stack = state.stack
    W, b, D = (t.numpy() for t in (stack.encoder, stack.encoder_bias, stack.decoder))
    centre = np.zeros((2, DIMENSIONS)) if stack.pre_bias is None else stack.pre_bias.numpy()
    reconstruction = run_forward(stack, x, {}, Signals()).reconstruction.numpy()
    costs = np.zeros(2)
    gradients = {"encoder": np.zeros_like(W), "encoder_bias": np.zeros_like(b), "decoder": np.zeros_like(D)}
    gradients["pre_bias"] = np.zeros_like(centre)
    for m in range(2):
        for n, row in enumerate(x.numpy()):
            pre = {f: W[m, f] @ (row - centre[m]) + b[m, f] for f in DEAD[m]}
            fire = [f for f in sorted(pre, key=pre.get, reverse=True)[:k] if pre[f] > 0]
            error = sum((pre[f] * D[m, f] for f in fire), np.zeros(DIMENSIONS)) - (row - reconstruction[m, n])
            costs[m] += weight * error @ error / divisor
            for f in fire:
                in_code = 2 * weight / divisor * (error @ D[m, f])
                gradients["decoder"][m, f] += 2 * weight / divisor * pre[f] * error
                gradients["encoder"][m, f] += in_code * (row - centre[m])
                gradients["encoder_bias"][m, f] += in_code
                gradients["pre_bias"][m] -= in_code * W[m, f]
    return costs, gradients


@pytest.mark.parametrize("loss", ["sum_square", "mean_square"])
@pytest.mark.parametrize("pre_bias", [False, True])
@pytest.mark.parametrize("k", [1, 2, 4, 50])
@pytest.mark.parametrize("kind", RULES)
def test_cost_and_gradients_are_those_of_a_sum_by_hand(kind, k, pre_bias, loss):
    state = a_state(kind(k=2, auxk=AuxK(weight=0.3, k=k, dead_after=1000)), pre_bias)
    x = torch.from_numpy(np.random.default_rng(4).standard_normal((SAMPLES, DIMENSIONS)))
    divisor = SAMPLES * (DIMENSIONS if loss == "mean_square" else 1)
    expected, gradients = by_hand(state, x, k, 0.3, divisor)
    weights = state.stack.requires_grad_copy()
    forward = run_forward(weights, x, {}, Signals())
    cost = auxk_cost(forward, weights, Training(reconstruction_loss=loss), state)["auxk"]
    np.testing.assert_allclose(cost.detach(), expected, rtol=1e-12)
    found = torch.autograd.grad(cost.sum(), list(weights.parameters().values()))
    for name, gradient in zip(weights.parameters(), found, strict=True):
        np.testing.assert_allclose(gradient, gradients[name], atol=1e-12, err_msg=name)


def test_by_default_half_as_many_fire_as_there_are_dimensions_and_the_weight_is_the_papers():
    x, ends = torch.from_numpy(np.random.default_rng(4).standard_normal((SAMPLES, DIMENSIONS))), []
    for k in (None, DIMENSIONS // 2, 2):
        state = a_state(TopK(k=2, auxk=AuxK(k=k, dead_after=1000)))
        forward = run_forward(state.stack, x, {}, Signals())
        ends.append(auxk_cost(forward, state.stack, Training(), state)["auxk"])
    assert torch.equal(ends[0], ends[1])
    assert (ends[0] != ends[2]).any()
    assert AuxK().weight == 1 / 32


def test_only_rows_of_dead_features_are_multiplied():
    """Whatever the others hold, here nothing that could be multiplied, does not matter."""
    dead = torch.tensor([[True, False, True, False]])
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 4, 3)))
    bias, x = rows[..., 0], torch.from_numpy(np.random.default_rng(1).standard_normal((5, 3)))
    expected = AuxK().of_residual(x, dead, rows, bias, rows)
    spoiled = rows.masked_fill(~dead[..., None], torch.nan)
    assert torch.equal(AuxK().of_residual(x, dead, spoiled, spoiled[..., 0], spoiled), expected)
    assert AuxK().of_residual(x, torch.zeros_like(dead), rows, bias, rows) is None


def test_a_feature_is_dead_after_so_many_samples_and_alive_once_it_fires():
    rule = TopK(k=1, auxk=AuxK(dead_after=12))
    state = State.start(Dictionary(d_sae=3, activation=rule), 3, {}, [0])
    for tensor in (state.stack.encoder, state.stack.decoder):
        tensor.copy_(torch.eye(3)[None])
    pace, dead = Training(learning_rate=1e-6), []
    for directions in ([0, 1, 2, 0], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 2], [0, 0, 0, 0]):
        output = step(state, torch.eye(3)[directions], pace, {})
        dead.append(float(output.terms["auxk"]) > 0)
        counted = state.since_fired.tolist()
    assert counted == [[0, 4, 4]]
    assert dead == [False] * 5
    state.since_fired[0, 1] = 12
    assert float(step(state, 0.5 + torch.eye(3)[[0, 0]], pace, {}).terms["auxk"]) > 0
    assert state.since_fired.tolist() == [[0, 14, 6]]


class Renew(Mechanism):
    def edit(self, forward, memory, stack, signals):
        features = torch.zeros(stack.members, stack.features, dtype=torch.bool)
        features[0, 1] = True
        return Reset(features, stack.encoder.clone(), stack.decoder.clone())


def test_a_feature_that_starts_anew_counts_anew():
    mechanisms = {"renew": Renew()}
    state = State.start(Dictionary(d_sae=4, activation=TopK(k=1)), 3, mechanisms, [0, 1])
    step(state, torch.zeros(5, 3), Training(), mechanisms)
    assert state.since_fired.tolist() == [[5, 0, 5, 5], [5, 5, 5, 5]]


def test_off_costs_nothing_and_counts_nothing():
    rule = TopK(k=1, auxk=AuxK(weight=0))
    state = State.start(Dictionary(d_sae=4, activation=rule), 3, {}, [0])
    assert state.since_fired is None
    assert set(step(state, torch.ones(5, 3), Training(), {}).terms) == {"reconstruction"}


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("pre_bias", [False, True])
def test_the_fast_step_is_the_readable_one_while_features_are_dead(pre_bias, clip):
    world = Superposition(dimensions=32, n_features=48, active=3.0)
    rule, pace = TopK(k=5, auxk=AuxK(k=7, dead_after=256)), Training(batch=256, learning_rate=1e-4, clip=clip)
    fast, slow = (
        State.start(Dictionary(d_sae=200, activation=rule, pre_bias=pre_bias), 32, {}, [0, 1, 2]) for _ in range(2)
    )
    for state in (fast, slow):
        state.stack.encoder[:, :40] *= 0.2
    for position in range(6):
        x = world.batch(position, 256).x
        ours, theirs = advance(fast, Inputs(x), pace, {}), step(slow, x, pace, {})
        assert ours.terms.keys() == theirs.terms.keys() == {"reconstruction", "auxk"}
        torch.testing.assert_close(ours.terms["auxk"], theirs.terms["auxk"], rtol=1e-5, atol=1e-6)
        assert (theirs.terms["auxk"] > 0).all() == (position > 0)
    for name, tensor in slow.tensors().items():
        torch.testing.assert_close(fast.tensors()[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mechanisms", [{}, {"matryoshka": Matryoshka()}], ids=["alone", "matryoshka"])
@pytest.mark.parametrize("kind", RULES)
def test_dead_features_come_back(kind, mechanisms):
    """A quarter of the features is too quiet to be among the k largest."""
    world = Superposition(dimensions=16, n_features=32, active=8.0, decay=1.0)
    pace, dead = Training(steps=200, batch=128, learning_rate=1e-2), {}
    for weight in (0.0, 1 / 32):
        rule = kind(k=2, auxk=AuxK(weight=weight, dead_after=256))
        state = State.start(Dictionary(d_sae=32, activation=rule), 16, mechanisms, [0, 1])
        state.stack.encoder[:, :8] *= 0.02
        for _ in train(state, inputs_of(world, pace), pace, mechanisms):
            pass
        codes = state.stack.encode(world.batch(0, 4096, split="evaluation").x)
        dead[weight] = int((codes.counts()[:, :8] == 0).sum())
    assert dead[0.0] >= 10
    assert dead[1 / 32] <= dead[0.0] / 2
