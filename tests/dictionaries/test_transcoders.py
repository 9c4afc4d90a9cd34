"""Transcoders and crosscoders: a target beside the input, over the registry of activations."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.dictionaries.test_battery import EXAMPLES
from unbraid.dictionaries import ACTIVATIONS, AuxK, Dictionary, Stack, TopK
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import CorrelationPruning, Matryoshka, Reallocation, Signals, Sparsity
from unbraid.dictionaries.stack import Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance, fit
from unbraid.dictionaries.training.step import State, reconstruction_loss, run_forward, step
from unbraid.errors import UserError
from unbraid.worlds import PlantedMap, PlantedPair, Superposition

WORLD = PlantedMap(dimensions=6, n_features=12, active=2.0, d_out=5, n_targets=8, fan_out=2, inhibitory=0.3)
TRAINING = Training(steps=12, batch=32, learning_rate=0.03)
CASES = [(kind, settings, skip) for kind in EXAMPLES for settings in EXAMPLES[kind] for skip in (False, True)]
MECHANISMS = {"sparsity": Sparsity(weight=0.1), "matryoshka": Matryoshka(weight=0.5)}


def _name(case):
    return f"{case[0]}-{case[1]}-{'skip' if case[2] else 'plain'}"


def dictionary_of(case):
    kind, settings, skip = case
    return Dictionary(d_sae=10, activation=ACTIVATIONS[kind](**settings), pre_bias=skip, skip=skip)


over_rules = pytest.mark.parametrize("case", CASES, ids=_name)


def begin(dictionary, seeds):
    return State.start(dictionary, 6, MECHANISMS, seeds, target=Target(5))


def go(state, until):
    while state.step < until:
        batch = WORLD.batch(state.step, 32)
        advance(state, Inputs(batch.x, target=batch.target), TRAINING, MECHANISMS)
    return state.tensors()


def general(case, seeds=(0, 1)):
    """A stack in general position, in float64."""
    rng, start = np.random.default_rng(3), begin(dictionary_of(case), list(seeds)).stack
    stack = start.with_parameters(
        {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    )
    stack.normalize()
    return stack


def pairs(size=9):
    rng = np.random.default_rng(4)
    return torch.from_numpy(rng.standard_normal((size, 6))), torch.from_numpy(rng.standard_normal((size, 5)))


@over_rules
def test_predictions_are_an_explicit_sum(case):
    stack, (x, _) = general(case), pairs()
    codes = stack.encode(x)
    expected = np.einsum("mbf,mfo->mbo", codes.to_dense().numpy(), stack.decoder.numpy())
    expected += stack.decoder_bias.numpy()[:, None]
    if stack.skip is not None:
        expected += np.einsum("bd,mdo->mbo", x.numpy(), stack.skip.numpy())
    np.testing.assert_allclose(stack.decode(codes, x).numpy(), expected, atol=1e-12)
    assert (stack.d_in, stack.d_out, stack.b_dec.shape) == (6, 5, (2, 5))


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "jumprelu"], ids=_name)
def test_gradients_of_the_loss_are_those_of_finite_differences(case):
    """Of rules whose gradients do not pretend; for jump-relu see test_jump_relu.py."""
    stack, (x, target) = general(case), pairs()
    parameters = stack.parameters()

    def cost(*values):
        changed = stack.with_parameters(dict(zip(parameters, values, strict=True)))
        forward = run_forward(changed, x, MECHANISMS, Signals(), target)
        return reconstruction_loss(forward, TRAINING) + MECHANISMS["matryoshka"].penalty(
            forward, {}, changed, Signals()
        )

    assert torch.autograd.gradcheck(cost, [p.clone().requires_grad_() for p in parameters.values()], fast_mode=True)


@over_rules
def test_training_moves_every_weight_lowers_the_loss_and_resumes_bit_for_bit(case):
    dictionary = dictionary_of(case)
    before = {name: tensor.clone() for name, tensor in begin(dictionary, [0, 1]).stack.parameters().items()}
    whole = go(begin(dictionary, [0, 1]), 12)
    assert all(not torch.equal(tensor, whole[f"stack.{name}"]) for name, tensor in before.items())
    saved = {name: tensor.clone() for name, tensor in go(begin(dictionary, [0, 1]), 6).items()}
    resumed = begin(dictionary, [8, 9])
    for name, tensor in resumed.tensors().items():
        tensor.copy_(saved[name])
    resumed.step = 6
    assert all(torch.equal(tensor, whole[name]) for name, tensor in go(resumed, 12).items())


@over_rules
def test_company_does_not_matter(case):
    together, alone = (go(begin(dictionary_of(case), seeds), 12) for seeds in ([7, 4, 1], [4]))
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name][1:2], tensor, rtol=1e-3, atol=1e-4)


@over_rules
def test_a_saved_one_is_the_same_again(case):
    stack = fit(WORLD, dictionary_of(case), training=TRAINING, seeds=[0, 1])
    again, x = Stack.of(stack.tensors(), stack.activation), WORLD.batch(0, 9).x
    assert again.is_transcoder
    assert torch.equal(again.decode(again.encode(x), x), stack.decode(stack.encode(x), x))
    assert stack.member(1).decode(stack.member(1).encode(x), x).shape == (1, 9, 5)


def test_an_autoencoder_is_the_case_in_which_the_target_is_the_input():
    x = pairs()[0].float()
    states = [State.start(Dictionary(d_sae=10, pre_bias=True), 6, MECHANISMS, [0, 1]) for _ in range(2)]
    for state, target in zip(states, (None, x), strict=True):
        for _ in range(3):
            step(state, x, TRAINING, MECHANISMS, target)
    assert all(torch.equal(a, b) for a, b in zip(*(s.tensors().values() for s in states), strict=True))


def test_one_step_of_a_skip_transcoder_is_that_worked_out_by_hand():
    """Gradients of a relu transcoder in numpy; Adam's first step is rate · sign of the gradient."""
    state = State.start(Dictionary(d_sae=4, skip=True, pre_bias=True), 6, {}, [0], target=Target(5))
    state.stack.encoder_bias.fill_(0.3)
    (x, y), old = (t.float() for t in pairs()), {n: p[0].numpy().copy() for n, p in state.stack.parameters().items()}
    pre = x.numpy() @ old["encoder"].T + old["encoder_bias"]
    codes = np.maximum(pre, 0)
    error = 2 / 9 * (codes @ old["decoder"] - y.numpy())
    in_codes = (error @ old["decoder"].T) * (pre > 0)
    gradients = {
        "encoder": in_codes.T @ x.numpy(),
        "encoder_bias": in_codes.sum(0),
        "pre_bias": -(in_codes @ old["encoder"]).sum(0),
        "decoder_bias": error.sum(0),
        "skip": x.numpy().T @ error,
    }
    step(state, x, Training(learning_rate=0.01), {}, y)
    for name, gradient in gradients.items():
        moved = state.stack.parameters()[name][0].numpy() - old[name]
        np.testing.assert_allclose(moved, -0.01 * np.sign(gradient), atol=1e-5, err_msg=name)


def test_the_data_start_pairs_inputs_with_their_targets():
    batch = WORLD.batch(0, 64)
    stack = Stack.start(Dictionary(d_sae=10, init="data"), 6, [0], batch.x, Target(5, first=batch.target))
    unit = torch.nn.functional.normalize
    for read, written in zip(stack.encoder[0], stack.decoder[0], strict=True):
        sample = (unit(batch.x, dim=1) @ read).argmax()
        if batch.target[sample].any():
            torch.testing.assert_close(unit(batch.target, dim=1)[sample], written)


def test_dead_features_of_a_transcoder_learn_by_auxk():
    rule = TopK(k=1, auxk=AuxK(k=2, dead_after=1))
    state = State.start(Dictionary(d_sae=10, activation=rule), 6, {}, [0], target=Target(5))
    state.stack.encoder_bias[:, 5:] = -100
    before = state.stack.decoder[0, 5:].clone()
    state.since_fired += 10
    state.stack.encoder_bias[:, 5:] = -0.01
    batch = WORLD.batch(0, 32)
    terms = step(state, batch.x, TRAINING, {}, batch.target).terms
    assert terms["auxk"] > 0
    assert not torch.equal(before, state.stack.decoder[0, 5:])


@pytest.mark.parametrize("mechanism", [Reallocation(), CorrelationPruning()], ids=["reallocation", "pruning"])
def test_what_restarts_features_refuses_transcoders(mechanism):
    with pytest.raises(UserError, match="here the target is not the input; accepted: without it"):
        fit(WORLD, Dictionary(d_sae=10), [mechanism], TRAINING, seeds=[0])


def test_a_skip_path_needs_a_target_and_decoding_it_the_inputs():
    with pytest.raises(UserError, match="skip is true, and the target is the input"):
        fit(Superposition(dimensions=6), Dictionary(d_sae=10, skip=True), training=TRAINING)
    stack = begin(Dictionary(d_sae=10, skip=True), [0]).stack
    with pytest.raises(UserError, match=r"accepted: decode\(codes, x\)"):
        stack.decode(stack.encode(WORLD.batch(0, 4).x))


PAIR = PlantedPair(dimensions=8, n_features=12, active=2.0)
CROSS = Sparsity(weight=0.1, weigh_by="decoder_norm")


def test_a_crosscoders_cost_weighs_codes_by_the_sum_of_their_decoder_norms():
    stack = fit(PAIR, Dictionary(d_sae=10), [CROSS], TRAINING, seeds=[0, 1])
    x = PAIR.batch(0, 16).x
    norms = stack.decoder[..., :4].norm(dim=-1) + stack.decoder[..., 4:].norm(dim=-1)
    expected = 0.1 * (stack.encode(x).to_dense() * norms[:, None]).sum(-1).mean(-1)
    forward = run_forward(stack, x, {}, Signals())
    torch.testing.assert_close(CROSS.penalty(forward, {}, stack, Signals()), expected)
    torch.testing.assert_close(stack.site_norms().square().sum(-1), torch.ones(2, 10))  # whole rows have length one
    assert stack.member(1).site_norms().shape == (1, 10, 2)


def test_with_that_cost_free_and_unit_rows_are_the_same_function_and_the_same_cost():
    """Codes times a, rows over a: the reason why whole rows of length one lose nothing."""
    stack, x = fit(PAIR, Dictionary(d_sae=10), [CROSS], TRAINING, seeds=[0]), PAIR.batch(0, 16).x
    by = torch.linspace(0.5, 2, 10)
    changed = {"encoder": stack.encoder * by[:, None], "encoder_bias": stack.encoder_bias * by}
    longer = stack.with_parameters({**changed, "decoder": stack.decoder / by[:, None]})
    longer = replace(longer, decoder_norm="free")
    costs = [CROSS.penalty(run_forward(s, x, {}, Signals()), {}, s, Signals()) for s in (stack, longer)]
    torch.testing.assert_close(costs[0], costs[1])
    torch.testing.assert_close(longer.decode(longer.encode(x)), stack.decode(stack.encode(x)))


def test_free_rows_keep_the_length_they_learn_and_directions_have_length_one():
    free = fit(PAIR, Dictionary(d_sae=10, decoder_norm="free"), [CROSS], TRAINING, seeds=[0, 1])
    assert (free.decoder.norm(dim=-1) - 1).abs().max() > 0.01
    torch.testing.assert_close(free.directions.norm(dim=-1), torch.ones(2, 10))
    with pytest.raises(UserError, match='accepted: weigh_by = "decoder_norm"'):
        fit(PAIR, Dictionary(d_sae=10, decoder_norm="free"), [Sparsity()], TRAINING, seeds=[0])
