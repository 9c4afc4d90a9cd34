"""The whole step against gradients derived by hand in numpy, member by member."""

import numpy as np
import pytest
import torch

from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.mechanisms import Mechanism, Sparsity
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import NotFinite
from unbraid.members import stack_configs

SAMPLES, DIMENSIONS, FEATURES = 12, 5, 7
WEIGHTS, RATES = [0.3, 1.5], [0.02, 0.05]
DIVISORS = {"sum_square": SAMPLES, "mean_square": SAMPLES * DIMENSIONS}


def begin(pre_bias=False, mechanisms=None):
    """Two members in general position, in float64."""
    dictionary, rng = Dictionary(d_sae=FEATURES, pre_bias=pre_bias), np.random.default_rng(2)
    stack = State.start(dictionary, DIMENSIONS, mechanisms or {}, [0, 1]).stack
    moved = {
        name: p.double() + 0.3 * torch.from_numpy(rng.standard_normal(p.shape))
        for name, p in stack.parameters().items()
    }
    stack = stack.with_parameters(moved)
    stack.normalize()
    return State(
        stack, Adam.start(stack.parameters()), {name: m.start(stack) for name, m in (mechanisms or {}).items()}
    )


def batch(position=0):
    return np.random.default_rng(position).standard_normal((SAMPLES, DIMENSIONS))


def by_hand(member, x, weight, loss, form):
    """Costs and gradients of one member, from the formulas: no autograd."""
    encoder, bias, decoder = member["encoder"], member["encoder_bias"], member["decoder"]
    centre = member.get("pre_bias", np.zeros(DIMENSIONS))
    pre = (x - centre) @ encoder.T + bias
    codes = np.maximum(pre, 0)
    error = codes @ decoder + centre - x
    lengths = np.linalg.norm(error, axis=1, keepdims=True)
    reconstruction = lengths.mean() if loss == "norm" else (error**2).sum() / DIVISORS[loss]
    per_code = weight / SAMPLES / (FEATURES if form == "published" else 1)
    costs = {"reconstruction": reconstruction, "sparsity": per_code * codes.sum()}

    to_error = error / lengths / SAMPLES if loss == "norm" else 2 * error / DIVISORS[loss]
    to_pre = (to_error @ decoder.T + per_code) * (pre > 0)
    gradients = {
        "encoder": to_pre.T @ (x - centre),
        "encoder_bias": to_pre.sum(0),
        "decoder": codes.T @ to_error,
        "pre_bias": to_error.sum(0) - to_pre.sum(0) @ encoder,
    }
    return costs, {name: gradients[name] for name in member}


def arrays_of(state, member):
    return {name: p[member].numpy().copy() for name, p in state.stack.parameters().items()}


@pytest.mark.parametrize("pre_bias", [False, True])
@pytest.mark.parametrize("form", ["per_sample", "published"])
@pytest.mark.parametrize("loss", ["sum_square", "mean_square", "norm"])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_two_steps_are_those_derived_by_hand(loss, form, pre_bias, clip):
    mechanisms = {"sparsity": stack_configs([Sparsity(weight=weight, form=form) for weight in WEIGHTS])}
    training = stack_configs(
        [Training(steps=9, warmup_steps=3, learning_rate=r, clip=clip, reconstruction_loss=loss) for r in RATES]
    )
    state = begin(pre_bias, mechanisms)
    mine = [arrays_of(state, member) for member in range(2)]
    mean = [{name: np.zeros_like(p) for name, p in member.items()} for member in mine]
    square = [{name: np.zeros_like(p) for name, p in member.items()} for member in mine]

    for t in (1, 2):
        outcome = step(state, torch.from_numpy(batch(t)), training, mechanisms)
        for m, member in enumerate(mine):
            costs, gradients = by_hand(member, batch(t), WEIGHTS[m], loss, form)
            for name, cost in costs.items():
                assert outcome.terms[name][m].item() == pytest.approx(cost, rel=1e-6)
            length = np.sqrt(sum((g**2).sum() for g in gradients.values()))
            shrink = 1 if clip is None else min(1, clip / length)
            for name, gradient in gradients.items():
                mean[m][name] = 0.9 * mean[m][name] + 0.1 * shrink * gradient
                square[m][name] = 0.999 * square[m][name] + 0.001 * (shrink * gradient) ** 2
                root = np.sqrt(square[m][name] / (1 - 0.999**t))
                member[name] -= RATES[m] * t / 4 * mean[m][name] / (1 - 0.9**t) / (root + 1e-8)
            member["decoder"] /= np.linalg.norm(member["decoder"], axis=1, keepdims=True)

    for m, member in enumerate(mine):
        for name, expected in member.items():
            # Adam hides the size of gradients, its moments do not
            np.testing.assert_allclose(state.adam.mean[name][m].numpy(), mean[m][name], rtol=1e-5, atol=1e-8)
            np.testing.assert_allclose(state.adam.square[name][m].numpy(), square[m][name], rtol=1e-5, atol=1e-12)
            np.testing.assert_allclose(arrays_of(state, m)[name], expected, rtol=0, atol=1e-7)


def test_a_step_reports_what_fired_before_it_changed_anything():
    state, x = begin(), batch()
    members = [arrays_of(state, member) for member in range(2)]
    outcome = step(state, torch.from_numpy(x), Training(), {})
    expected = [np.maximum(x @ member["encoder"].T + member["encoder_bias"], 0) for member in members]
    np.testing.assert_array_equal(outcome.l0, [(codes > 0).sum(1).mean() for codes in expected])
    assert state.step == 1
    assert not outcome.terms["reconstruction"].requires_grad


def test_enough_steps_make_the_cost_fall():
    state = begin()
    costs = [
        step(state, torch.from_numpy(batch()), Training(learning_rate=0.02), {}).terms["reconstruction"]
        for _ in range(60)
    ]
    assert (costs[-1] < 0.3 * costs[0]).all()


class Broken(Mechanism):
    """Its cost is not finite for the last member."""

    def penalty(self, forward, memory, stack, signals):
        return torch.tensor([0.0, float("nan")])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("where", "term", "member"), [("x", "reconstruction", 0), ("weight", "reconstruction", 1), ("penalty", "broken", 1)]
)
def test_a_cost_that_is_not_finite_stops_before_anything_changed(where, term, member, bad):
    mechanisms = {"broken": Broken()} if where == "penalty" else {}
    state, x = begin(mechanisms=mechanisms), torch.from_numpy(batch())
    step(state, x, Training(), {})
    if where == "x":
        x[3, 2] = bad
    if where == "weight":
        state.stack.decoder[1] = bad
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    with pytest.raises(NotFinite) as caught:
        step(state, x, Training(), mechanisms)
    assert (caught.value.step, caught.value.term, caught.value.member) == (1, f"loss term '{term}'", member)
    assert f"'{term}'" in str(caught.value)
    assert f"member {member}" in str(caught.value)
    after = state.tensors()
    assert state.step == 1
    assert all(torch.equal(before[name].nan_to_num(), after[name].nan_to_num()) for name in before)


def test_the_tensors_of_a_state_are_its_storage_under_flat_names():
    state = begin(pre_bias=True)
    parameters = {"encoder", "encoder_bias", "decoder", "pre_bias"}
    assert set(state.tensors()) == {
        f"{group}.{name}" for group in ("stack", "mean", "square", "age") for name in parameters
    }
    assert state.tensors()["stack.encoder"].data_ptr() == state.stack.encoder.data_ptr()
    assert state.tensors()["mean.decoder"].data_ptr() == state.adam.mean["decoder"].data_ptr()
