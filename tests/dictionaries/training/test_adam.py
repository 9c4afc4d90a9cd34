"""Our Adam against torch's, and against what its closed form says of a feature that forgot."""

import numpy as np
import pytest
import torch

from unbraid.dictionaries.training.adam import Adam, clip_per_member, gradient_lengths

SHAPES = {"encoder": (3, 4, 5), "encoder_bias": (3, 4), "decoder": (3, 4, 5), "pre_bias": (3, 5)}


@pytest.fixture
def parameters(rng):
    return {name: torch.from_numpy(rng.standard_normal(shape)) for name, shape in SHAPES.items()}


def gradients(step):
    """Deterministic noise whose size wanders over the steps and differs between entries, with exact zeros."""
    rng = np.random.default_rng(100 + step)
    size = 10.0 ** rng.integers(-4, 3)
    made = {name: size * rng.standard_normal(shape) * rng.random(shape) ** 4 for name, shape in SHAPES.items()}
    made["encoder"][0, 0] = 0
    return {name: torch.from_numpy(gradient) for name, gradient in made.items()}


def torch_adam(parameters, rates, grads):
    """torch's Adam, one optimiser a member, since members have their own rates."""
    parts = {(name, m): torch.nn.Parameter(p[m].clone()) for name, p in parameters.items() for m in range(len(rates))}
    groups = [
        {"params": [p for (_, m), p in parts.items() if m == member], "lr": rates[member]}
        for member in range(len(rates))
    ]
    optimiser = torch.optim.Adam(groups)
    for grad in grads:
        for (name, member), part in parts.items():
            part.grad = grad[name][member].clone()
        optimiser.step()
    return {name: torch.stack([parts[name, m].detach() for m in range(len(rates))]) for name in parameters}


@pytest.mark.parametrize("rates", [[0.01] * 3, [0.1, 0.001, 0.0]])
def test_fifty_steps_end_where_torchs_adam_ends(parameters, rates):
    expected = torch_adam(parameters, rates, [gradients(step) for step in range(50)])
    adam = Adam.start(parameters)
    for step in range(50):
        adam.update(parameters, gradients(step), torch.tensor(rates, dtype=torch.float64))
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter, expected[name], rtol=1e-10, atol=1e-12)


def test_in_float32_it_stays_near_float64(parameters):
    rough = {name: p.float() for name, p in parameters.items()}
    adam, adam32, rate = Adam.start(parameters), Adam.start(rough), torch.full((3,), 0.01)
    for step in range(50):
        adam.update(parameters, gradients(step), rate.double())
        adam32.update(rough, {name: g.float() for name, g in gradients(step).items()}, rate)
    for name, parameter in parameters.items():
        torch.testing.assert_close(rough[name].double(), parameter, rtol=1e-4, atol=1e-4)


def test_gradients_are_left_as_they_were(parameters):
    given = gradients(0)
    Adam.start(parameters).update(parameters, given, torch.full((3,), 0.01, dtype=torch.float64))
    assert all(torch.equal(given[name], gradients(0)[name]) for name in SHAPES)


@pytest.mark.parametrize("before", [1, 10, 40])
def test_a_forgotten_feature_goes_on_as_under_a_fresh_adam(parameters, before):
    rate, forgotten = torch.full((3,), 0.01, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.bool)
    forgotten[0, 1] = forgotten[2, 3] = True
    unforgetful = torch_adam(parameters, [0.01] * 3, [gradients(step) for step in range(before + 6)])
    adam = Adam.start(parameters)
    for step in range(before):
        adam.update(parameters, gradients(step), rate)
    fresh = torch_adam(parameters, [0.01] * 3, [gradients(before + step) for step in range(6)])
    adam.forget(forgotten)
    for step in range(6):
        adam.update(parameters, gradients(before + step), rate)
    for name in ("encoder", "encoder_bias", "decoder"):
        torch.testing.assert_close(parameters[name][forgotten], fresh[name][forgotten], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(parameters[name][~forgotten], unforgetful[name][~forgotten], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(parameters["pre_bias"], unforgetful["pre_bias"], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("longest", [0.01, 1.0, 1e6])
def test_each_members_gradient_is_clipped_as_torch_would_clip_it_alone(longest):
    ours = gradients(1)
    for factor, name in zip((1e-3, 1.0, 1e3, 1.0), SHAPES, strict=True):
        ours[name][1] *= factor
    alone = [{name: gradient[m].clone() for name, gradient in ours.items()} for m in range(3)]
    clip_per_member(ours, gradient_lengths(ours), longest)
    for member, theirs in enumerate(alone):
        parameters = [torch.nn.Parameter(g.clone()) for g in theirs.values()]
        for parameter, gradient in zip(parameters, theirs.values(), strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(parameters, longest)
        for name, parameter in zip(SHAPES, parameters, strict=True):
            torch.testing.assert_close(ours[name][member], parameter.grad, rtol=1e-4, atol=1e-12)


def test_a_gradient_that_is_short_enough_or_zero_is_left_alone():
    short = {name: torch.full(shape, 1e-3, dtype=torch.float64) for name, shape in SHAPES.items()}
    short["encoder"][1] = short["encoder_bias"][1] = short["decoder"][1] = short["pre_bias"][1] = 0
    before = {name: gradient.clone() for name, gradient in short.items()}
    clip_per_member(short, gradient_lengths(short), 1.0)
    assert all(torch.equal(short[name], before[name]) for name in SHAPES)


def test_one_members_long_gradient_does_not_shorten_anothers():
    grads = {"encoder": torch.stack([torch.full((4, 5), 1e6), torch.full((4, 5), 1e-3)])}
    clip_per_member(grads, gradient_lengths(grads), 1.0)
    assert grads["encoder"][0].norm() == pytest.approx(1, rel=1e-5)
    assert torch.equal(grads["encoder"][1], torch.full((4, 5), 1e-3))
