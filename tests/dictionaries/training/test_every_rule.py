"""Every rule's fast step is the readable one from its first step on, whatever else is switched on."""

import copy

import pytest
import torch

from unbraid.dictionaries import BatchTopK, Dictionary, Gated, JumpRelu, Relu, TopK, screen
from unbraid.dictionaries import lists as making
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.lists import Inputs, encode_lists
from unbraid.dictionaries.mechanisms import MECHANISMS, Matryoshka, Sparsity
from unbraid.dictionaries.training import fast_step as choice
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.dense_step import dense_step
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.sparse_step import sparse_step
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

D, F, BATCH, SEEDS = 32, 512, 192, [0, 1, 2]
WORLD = Superposition(dimensions=D, n_features=48, active=3.0)
NOISY = WORLD.model_copy(update={"noise": 0.05})
"""Without empty samples, in which features tie whose biases Adam has moved alike."""
DYING = AuxK(dead_after=2 * BATCH, k=7)
RULES = {
    "relu": Relu(),
    "topk": TopK(k=4),
    "topk dying": TopK(k=3, auxk=DYING),
    "batchtopk": BatchTopK(k=4),
    "batchtopk dying": BatchTopK(k=3, auxk=DYING),
    "jumprelu": JumpRelu(threshold=0.5, bandwidth=0.2),
    "gated": Gated(),
}
SPARSITY = {"sparsity": stack_configs([Sparsity(weight=weight) for weight in (0.1, 0.2, 0.3)])}
NESTED = {"matryoshka": stack_configs([Matryoshka(weight=w, prefixes=[0.5, 0.1, 0.5]) for w in (1.0, 0.5, 2.0)])}
BESIDE = {
    "dynamic_pairs": ["pair_orthogonality"],
    "adaptive_tau": ["pair_orthogonality"],
    "adaptive_neighbourhoods": ["lateral_inhibition"],
    "momentum_importance": ["correlation_pruning"],
}
"""What must be on for a mechanism to do something."""
PENALISED = {**SPARSITY, **NESTED}


def start(rule, mechanisms, pre_bias=True, init="tied", members=3):
    dictionary = Dictionary(d_sae=F, activation=RULES[rule], pre_bias=pre_bias, init=init)
    state = State.start(dictionary, D, mechanisms, SEEDS[:members], WORLD.batch(0, BATCH).x)
    if rule in ("relu", "gated"):
        state.stack.encoder_bias.fill_(-0.6 if init == "tied" else -0.3)
    generator = torch.Generator().manual_seed(3)
    for name, tensor in state.stack.rule.items():
        if name != "log_threshold":
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator))
    if init == "data":  # equal samples are equal rows, and of equals either may be among the largest
        state.stack.encoder.add_(0.01 * torch.randn(state.stack.encoder.shape, generator=generator))
    if state.stack.pre_bias is not None:
        state.stack.pre_bias.add_(0.05)
    return state


def training(**changes):
    return stack_configs([Training(batch=BATCH, learning_rate=rate, **changes) for rate in (1e-4, 1e-3, 3e-4)])


def same(fast, slow):
    """To 1e-5, moments and memories without exception.

    Where a gradient cancels to rounding, Adam makes a step of any size up to the rate of it: a few weights may differ.
    """
    for name, tensor in slow.tensors().items():
        found, (group, _, its_name) = fast.tensors()[name], name.partition(".")
        if group == "stack" and its_name in slow.adam.square:
            close = torch.isclose(found, tensor, rtol=1e-4, atol=1e-5).float().mean()
            assert close > 0.99, f"{name}: of {close:.4%} only"
            torch.testing.assert_close(found, tensor, rtol=0, atol=1e-3, msg=lambda m, n=name: f"{n}: {m}")
        else:
            torch.testing.assert_close(found, tensor, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def decided(stack, x):
    """Whether what fires is beyond rounding: of pre-activations equal to 1e-6 either may be among the largest, and one
    of 1e-9 may fire or not."""
    inputs = x.double() if stack.pre_bias is None else x.double() - stack.pre_bias.double()[:, None]
    pre = inputs @ stack.encoder.double().mT + stack.encoder_bias.double()[:, None]
    if not isinstance(stack.activation, TopK | BatchTopK):
        return bool(((pre.abs() > 1e-8) | (pre == 0)).all())
    per = 1 if isinstance(stack.activation, TopK) else BATCH
    largest = pre.unflatten(1, (-1, per)).flatten(2).sort(dim=-1, descending=True).values
    k = stack.activation.k * per
    least, next_one = largest[..., k - 1], largest[..., k]
    return bool(((least - next_one > 1e-6) | (least <= 0)).all())


def compare(fast, slow, settings, mechanisms, take=sparse_step, steps=4, world=WORLD):
    position = 0
    for _ in range(steps):
        while not decided(slow.stack, x := world.batch(position, BATCH).x):
            position += 1
        position += 1
        ours, theirs = take(fast, Inputs(x), settings, mechanisms), step(slow, x, settings, mechanisms)
        assert ours is not None, "lists declined"
        assert ours.terms.keys() == theirs.terms.keys()
        for name, cost in theirs.terms.items():
            torch.testing.assert_close(ours.terms[name], cost, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
        torch.testing.assert_close(ours.l0, theirs.l0)
    same(fast, slow)


@pytest.mark.parametrize("loss", ["sum_square", "mean_square", "norm"])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("pre_bias", [False, True])
@pytest.mark.parametrize("mechanisms", [SPARSITY, PENALISED], ids=["plain", "nested"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_does_what_the_readable_step_does(rule, mechanisms, pre_bias, clip, loss):
    states = [start(rule, mechanisms, pre_bias) for _ in range(2)]
    compare(*states, training(clip=clip, reconstruction_loss=loss), mechanisms)


@pytest.mark.parametrize("init", ["tied", "unit", "data", "published"])
@pytest.mark.parametrize("rule", RULES)
def test_it_does_so_from_every_start_however_dense(rule, init):
    """Biases are those of the start: relu, gated and jump-relu begin dense, and each member goes its own way."""
    states = [start(rule, SPARSITY, init=init) for _ in range(2)]
    for state in states:
        state.stack.encoder_bias[1:] += 0.5
    compare(*states, training(), SPARSITY, advance)


@pytest.mark.parametrize(("clip", "pre_bias"), [(None, True), (0.05, False)])
@pytest.mark.parametrize("begin", ["cold", "firing_share", "SAELens"])
@pytest.mark.parametrize("rule", RULES)
def test_it_does_so_from_the_first_step_of_a_real_start(rule, begin, clip, pre_bias):
    """Nothing is changed by hand: cold, sparse by quantiles of a first batch, and with SAELens' short encoder."""
    share = 0.02 if begin == "firing_share" and rule in ("relu", "jumprelu", "gated") else None
    activation = JumpRelu(threshold=0.01) if (begin, rule) == ("SAELens", "jumprelu") else RULES[rule]
    dictionary = Dictionary(d_sae=F, activation=activation, pre_bias=pre_bias, firing_share=share)
    first = NOISY.batch(99, BATCH).x  # of the batch whose quantile a bias is, one sample a feature is just at the edge
    states = [State.start(dictionary, D, SPARSITY, SEEDS, first) for _ in range(2)]
    for state in states if begin == "SAELens" else []:
        state.stack.encoder.mul_(0.1)
    compare(*states, training(clip=clip), SPARSITY, advance, steps=3, world=NOISY)


@pytest.mark.parametrize("pays", [False, True], ids=["exact product", "screen"])
@pytest.mark.parametrize("rule", RULES)
def test_with_and_without_bfloat16(rule, pays, monkeypatch):
    monkeypatch.setattr(screen, "pays", lambda: pays)
    monkeypatch.setattr(making, "SCREENED_BLOCK", 96)
    monkeypatch.setattr(making, "SCREEN_BYTES", 2 * F * 50)
    compare(start(rule, SPARSITY), start(rule, SPARSITY), training(), SPARSITY)


FAST = sorted(name for name, kind in MECHANISMS.items() if name not in PENALISED and not kind.needs_model)
"""The others: `sparsity` and `matryoshka` are in every test; a model is run by the readable step."""


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("rule", ["relu", "topk dying", "batchtopk dying", "jumprelu", "gated"])
def test_with_every_mechanism(rule, name):
    names = [name, *BESIDE.get(name, ())]
    mechanisms = {**SPARSITY, **{one: stack_configs([MECHANISMS[one]()] * 3) for one in names}}
    if name == "p_annealing" and rule in ("jumprelu", "gated"):  # their cost counts gates, not codes
        with pytest.raises(UserError, match=r"p_annealing anneals Σ\|code\|"):
            advance(start(rule, mechanisms), Inputs(WORLD.batch(0, BATCH).x), training(), mechanisms)
        return
    compare(start(rule, mechanisms), start(rule, mechanisms), training(), mechanisms, advance)


def test_something_is_dead_in_these_tests():
    state = start("batchtopk dying", SPARSITY)
    for position in range(4):
        outcome = sparse_step(state, Inputs(WORLD.batch(position, BATCH).x), training(), SPARSITY)
    assert outcome is not None
    assert (outcome.terms["auxk"] > 0).all()
    assert state.since_fired is not None
    assert (state.since_fired >= DYING.dead_after).sum(1).min() > 20


@pytest.mark.parametrize("rule", RULES)
def test_company_does_not_matter(rule):
    settings = [stack_configs([Training(batch=BATCH, learning_rate=1e-4)] * n) for n in (3, 1)]
    mechanisms = [{"sparsity": stack_configs([Sparsity()] * count)} for count in (3, 1)]
    together, alone = start(rule, mechanisms[0]), start(rule, mechanisms[1], members=1)
    if "gain" in alone.stack.rule:
        for name, tensor in alone.stack.rule.items():
            tensor.copy_(together.stack.rule[name][:1])
    for position in range(4):
        x = Inputs(WORLD.batch(position, BATCH).x)
        assert sparse_step(together, x, settings[0], mechanisms[0]) is not None
        assert sparse_step(alone, x, settings[1], mechanisms[1]) is not None
    for name, tensor in alone.stack.tensors().items():
        torch.testing.assert_close(tensor, together.stack.tensors()[name][:1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_threads_do_not_change_a_bit(rule):
    ends, before = [], torch.get_num_threads()
    for threads in (2, 1):  # kernels use as many as torch does
        torch.set_num_threads(threads)
        state = start(rule, PENALISED)
        for position in range(3):
            assert sparse_step(state, Inputs(WORLD.batch(position, BATCH).x), training(), PENALISED) is not None
        ends.append(copy.deepcopy(state.tensors()))
    torch.set_num_threads(before)
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())


def test_batch_topk_lists_the_same_however_it_guesses(monkeypatch):
    """Too low a guess lists more, too high a one is noticed; what is left is the same, also among equals."""
    stack = start("batchtopk", {}).stack
    x = WORLD.batch(0, BATCH).x
    x = torch.cat([x, x])
    values = []
    for guesses in ((1.3, 3.0, 10.0), (0.01, 0.1, 20.0), (0.01,), (100.0,)):
        monkeypatch.setattr(making, "GUESSES", guesses)
        lists = encode_lists(stack, Inputs(x))
        assert lists is not None
        assert lists.counts.sum(1).tolist() == [4 * len(x)] * 3
        values.append(lists.codes().to_dense())
    expected = stack.activation.fire(stack.pre_activations(x), stack.tensors()).codes.to_dense()
    for found in values:
        torch.testing.assert_close(found.sum((1, 2)), expected.sum((1, 2)), rtol=1e-6, atol=0)
        assert ((found - expected).abs() > 1e-5).sum() <= 2 * 3  # of two equal samples either may be the last


def test_where_less_is_positive_than_should_fire_all_of_it_fires():
    stack = start("batchtopk", {}).stack
    stack.encoder_bias.fill_(-1.3)
    x = WORLD.batch(0, BATCH).x
    lists = encode_lists(stack, Inputs(x))
    assert lists is not None
    expected = stack.pre_activations(x).relu()
    assert (expected > 0).sum() < 3 * 4 * BATCH
    torch.testing.assert_close(lists.codes().to_dense(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", ["sum_square", "mean_square", "norm"])
@pytest.mark.parametrize(("clip", "pre_bias"), [(None, False), (None, True), (0.05, True)])
@pytest.mark.parametrize("rule", ["relu", "jumprelu", "gated"])
def test_the_dense_way_of_every_rule(rule, clip, pre_bias, loss):
    states = [start(rule, PENALISED, pre_bias) for _ in range(2)]
    for state in states:
        state.stack.encoder_bias.copy_(torch.tensor([0.6, 0.0, -0.3])[:, None].expand(3, F))
    compare(*states, training(clip=clip, reconstruction_loss=loss), PENALISED, dense_step)


def test_batch_topk_with_a_k_too_large_for_lists_goes_by_the_readable_step(monkeypatch):
    taken = []
    monkeypatch.setattr(choice, "step", lambda *given: taken.append(1) or step(*given))
    monkeypatch.setitem(RULES, "many", BatchTopK(k=F // 4))
    compare(start("many", SPARSITY), start("many", SPARSITY), training(), SPARSITY, advance, steps=2)
    assert len(taken) == 2 * 3
