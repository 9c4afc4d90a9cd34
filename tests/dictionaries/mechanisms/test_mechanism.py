"""The five seams, each with a toy mechanism that acts there alone; signals; and what a reset forgets."""

from dataclasses import replace
from itertools import permutations
from typing import ClassVar

import numpy as np
import pytest
import torch

from unbraid.dictionaries import BatchTopK, Dictionary, Gated, JumpRelu, Relu, Stack, TopK, Variational
from unbraid.dictionaries.mechanisms import Mechanism, Reset, Signals, Sparsity
from unbraid.dictionaries.mechanisms.mechanism import check_signals, gather_signals
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.step import State, run_forward, step
from unbraid.errors import NotFinite, PluginFault, UserError

TRAINING = Training(steps=20, batch=16, learning_rate=0.01)
DIMENSIONS, FEATURES, MEMBERS = 5, 7, 2


def batch(position):
    return torch.from_numpy(np.random.default_rng(position).standard_normal((16, DIMENSIONS)))


def begin(mechanisms):
    state = State.start(Dictionary(d_sae=FEATURES), DIMENSIONS, mechanisms, range(MEMBERS))
    stack = state.stack.with_parameters({name: p.double() for name, p in state.stack.parameters().items()})
    return State(stack, Adam.start(stack.parameters()), {name: m.start(stack) for name, m in mechanisms.items()})


def go(mechanisms, steps):
    state = begin(mechanisms)
    return state, [step(state, batch(state.step), TRAINING, mechanisms) for _ in range(steps)]


def codes_of_steps(mechanisms, steps):
    """What fires in each step, from passes of our own before it."""
    state, fired = begin(mechanisms), []
    for position in range(steps):
        signals = gather_signals(mechanisms, state.memories, state.stack)
        fired.append(run_forward(state.stack, batch(position), mechanisms, signals).codes.to_dense())
        step(state, batch(position), TRAINING, mechanisms)
    return fired


# The seams


class Nothing(Mechanism):
    pass


class Silence(Mechanism):
    """Acts at `encode`: the first feature never fires."""

    def encode(self, codes, memory, stack, signals):
        features = torch.arange(codes.width) if codes.features is None else codes.features
        return replace(codes, values=codes.values * (features != 0))


class Halve(Mechanism):
    def encode(self, codes, memory, stack, signals):
        return replace(codes, values=codes.values / 2)


class Pull(Mechanism):
    """Acts at `penalty`: draws every encoder bias towards 1, so strongly that it alone decides the direction."""

    def penalty(self, forward, memory, stack, signals):
        return 1e6 * (stack.encoder_bias - 1).square().sum(-1)


class Count(Mechanism):
    """Acts at `observe`: counts steps per member and firing per feature."""

    def start(self, stack):
        return {"steps": torch.zeros(stack.members), "fired": torch.zeros(stack.members, stack.features)}

    def observe(self, forward, memory, stack, signals):
        assert not torch.is_grad_enabled()
        return {"steps": memory["steps"] + 1, "fired": memory["fired"] + forward.codes.counts()}


class Louder(Mechanism):
    """Acts at `signal`: asks for l1 = 1 + the number of steps it has seen."""

    writes: ClassVar[frozenset[str]] = frozenset({"l1"})

    def start(self, stack):
        return {"seen": torch.zeros(stack.members, dtype=torch.float64)}

    def signal(self, memory, stack):
        return {"l1": 1 + memory["seen"]}

    def observe(self, forward, memory, stack, signals):
        return {"seen": memory["seen"] + 1}


class Renew(Mechanism):
    """Acts at `edit`: after so many steps, starts one feature of one member anew, in direction (1, 1, …)."""

    after: int = 3
    member: int = 0
    feature: int = 2

    def start(self, stack):
        return {"steps": torch.zeros(stack.members)}

    def observe(self, forward, memory, stack, signals):
        return {"steps": memory["steps"] + 1}

    def edit(self, forward, memory, stack, signals):
        if memory["steps"][0] != self.after:
            return None
        features = torch.zeros(MEMBERS, FEATURES, dtype=torch.bool)
        features[self.member, self.feature] = True
        rows = torch.ones(MEMBERS, FEATURES, DIMENSIONS, dtype=torch.float64)
        return Reset(features, encoder=0.5 * rows, decoder=3 * rows)


def test_a_mechanism_that_does_nothing_changes_nothing():
    plain, nothing = go({}, 5)[0].tensors(), go({"nothing": Nothing()}, 5)[0].tensors()
    assert plain.keys() == nothing.keys()
    assert all(torch.equal(tensor, nothing[name]) for name, tensor in plain.items())


def test_a_mechanism_without_a_penalty_adds_no_term():
    outcome = go({"nothing": Nothing(), "pull": Pull()}, 1)[1][0]
    assert set(outcome.terms) == {"reconstruction", "pull"}


def test_encode_changes_what_fires_and_what_learns():
    mechanisms = {"silence": Silence()}
    state, outcomes = go(mechanisms, 4)
    start = begin(mechanisms).stack
    fired = [codes != 0 for codes in codes_of_steps(mechanisms, 4)]
    assert all(not codes[..., 0].any() for codes in fired)
    assert all(torch.equal(o.l0, codes.sum(-1).double().mean(-1)) for o, codes in zip(outcomes, fired, strict=True))
    assert torch.equal(state.stack.encoder[:, 0], start.encoder[:, 0])
    assert (state.stack.encoder[:, 1:] != start.encoder[:, 1:]).any(-1).all()


def test_encode_passes_gradients_through():
    stack, x = begin({}).stack.requires_grad_copy(), batch(0)
    plain = run_forward(stack, x, {}, Signals()).codes.values.sum()
    halved = run_forward(stack, x, {"halve": Halve()}, Signals()).codes.values.sum()
    twice = run_forward(stack, x, {"halve": Halve(), "again": Halve()}, Signals()).codes.values.sum()
    gradients = [torch.autograd.grad(value, stack.encoder)[0] for value in (plain, halved, twice)]
    torch.testing.assert_close(gradients[0], 2 * gradients[1])
    torch.testing.assert_close(gradients[0], 4 * gradients[2])


@pytest.mark.parametrize(
    ("activation", "counts_codes"),
    [
        (Relu(), True),
        (TopK(k=3), True),
        (BatchTopK(k=2), True),
        (Gated(), False),
        (JumpRelu(), False),
        (Variational(), False),
    ],
    ids=lambda a: getattr(a, "kind", ""),
)
def test_sparsity_counts_codes_as_they_were_lowered_unless_the_activation_counts_gates(activation, counts_codes):
    stack = Stack.start(Dictionary(d_sae=FEATURES, activation=activation), DIMENSIONS, [0])
    x = batch(0).float()
    plain = run_forward(stack, x, {}, Signals())
    halved = run_forward(stack, x, {"halve": Halve()}, Signals())
    torch.testing.assert_close(halved.counted(), plain.counted() / 2 if counts_codes else plain.counted())
    torch.testing.assert_close(halved.codes.to_dense(), plain.codes.to_dense() / 2)
    torch.testing.assert_close(halved.detached().codes.to_dense(), plain.detached().codes.to_dense() / 2)
    torch.testing.assert_close(halved.detached().would_fire.to_dense(), plain.detached().codes.to_dense())


def test_a_trained_stack_encodes_without_the_mechanisms_it_was_trained_with():
    state, _ = go({"silence": Silence()}, 2)
    assert (state.stack.encode(batch(0)).to_dense()[..., 0] > 0).any()


def test_a_penalty_moves_the_weights_down_its_gradient():
    """Adam's first step is the rate times the sign of the gradient."""
    state, outcomes = go({"pull": Pull()}, 1)
    torch.testing.assert_close(outcomes[0].terms["pull"], torch.full((2,), 1e6 * FEATURES, dtype=torch.float64))
    torch.testing.assert_close(state.stack.encoder_bias, torch.full((2, FEATURES), 0.01, dtype=torch.float64))


def test_observe_sees_each_pass_and_its_own_memory():
    state, _ = go({"count": Count()}, 5)
    assert state.memories["count"]["steps"].tolist() == [5, 5]
    fired = sum((codes != 0).sum(1) for codes in codes_of_steps({"count": Count()}, 5))
    assert torch.equal(state.memories["count"]["fired"], fired.float())


def test_memories_are_part_of_the_state():
    state, _ = go({"count": Count(), "other": Count()}, 2)
    names = {name for name in state.tensors() if name.startswith("memory.")}
    assert names == {"memory.count.steps", "memory.count.fired", "memory.other.steps", "memory.other.fired"}
    assert state.tensors()["memory.count.fired"] is state.memories["count"]["fired"]


# Signals


def test_a_reader_sees_what_the_writer_knew_when_the_step_began():
    mechanisms = {"sparsity": Sparsity(weight=0.3), "louder": Louder()}
    _, outcomes = go(mechanisms, 4)
    for seen, (outcome, codes) in enumerate(zip(outcomes, codes_of_steps(mechanisms, 4), strict=True)):
        torch.testing.assert_close(outcome.terms["sparsity"], 0.3 * (1 + seen) * codes.sum(-1).mean(-1))


def test_a_signal_nobody_writes_is_neutral():
    mechanisms = {"sparsity": Sparsity(weight=0.3)}
    _, outcomes = go(mechanisms, 2)
    torch.testing.assert_close(outcomes[1].terms["sparsity"], 0.3 * codes_of_steps(mechanisms, 2)[1].sum(-1).mean(-1))


def test_writers_and_readers_have_no_order():
    mechanisms = {"sparsity": Sparsity(), "louder": Louder(), "count": Count(), "renew": Renew()}
    ends = [go(dict(order), 6)[0].tensors() for order in permutations(mechanisms.items())]
    assert all(torch.equal(tensor, other[name]) for other in ends[1:] for name, tensor in ends[0].items())


class Unknown(Mechanism):
    writes: ClassVar[frozenset[str]] = frozenset({"l2"})


def test_a_signal_that_nothing_reads_is_refused():
    with pytest.raises(UserError, match="louder writes 'l1', which nothing enabled reads"):
        begin({"louder": Louder()})


def test_two_writers_of_a_signal_are_refused():
    with pytest.raises(UserError, match="second and first both write 'l1'"):
        begin({"sparsity": Sparsity(), "first": Louder(), "second": Louder()})


def test_a_signal_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(UserError, match="unknown writes 'l2', which is not a signal; did you mean 'l1'"):
        begin({"unknown": Unknown()})


def test_a_writer_with_a_reader_and_no_mechanism_at_all_are_accepted():
    check_signals({"sparsity": Sparsity(), "louder": Louder()})
    check_signals({})


# Resets


@pytest.fixture
def renewed():
    """The state right after feature 2 of member 0 started anew, and that of a run where it did not."""
    beside = {"sparsity": Sparsity(), "count": Count()}
    return go({**beside, "renew": Renew()}, 3)[0], go(beside, 3)[0]


def test_a_reset_gives_the_feature_its_new_rows_and_no_bias(renewed):
    stack = renewed[0].stack
    torch.testing.assert_close(stack.encoder[0, 2], torch.full((5,), 0.5, dtype=torch.float64))
    torch.testing.assert_close(stack.decoder[0, 2], torch.full((5,), 1 / 5**0.5, dtype=torch.float64))
    assert stack.encoder_bias[0, 2] == 0


def test_a_reset_makes_adam_forget_the_feature(renewed):
    state, without = renewed
    for kept, before in [(state.adam.mean, without.adam.mean), (state.adam.square, without.adam.square)]:
        assert all(not tensor[0, 2].any() for tensor in kept.values())
        assert all(tensor[0, 2].any() for tensor in before.values())
    assert all(age[0, 2] == 0 for age in state.adam.age.values())
    assert all(age[0, 2] == 3 for age in without.adam.age.values())


def test_a_reset_makes_every_mechanism_forget_the_feature(renewed):
    state, without = renewed
    assert state.memories["count"]["fired"][0, 2] == 0
    assert without.memories["count"]["fired"][0, 2] > 0
    assert state.memories["count"]["steps"].tolist() == [3, 3]


def test_a_reset_touches_no_other_feature(renewed):
    state, without = renewed
    others = torch.ones(MEMBERS, FEATURES, dtype=torch.bool)
    others[0, 2] = False
    theirs = without.tensors()
    for name, tensor in state.tensors().items():
        if name in theirs and tensor.shape[:2] == others.shape:
            assert torch.equal(tensor[others], theirs[name][others]), name


def test_the_next_update_of_a_reset_feature_is_a_fresh_adams_first(renewed):
    state, _ = renewed
    mechanisms = {"sparsity": Sparsity(), "count": Count(), "renew": Renew()}
    before = {name: p.clone() for name, p in state.stack.parameters().items()}
    encoder, bias, decoder = (torch.nn.Parameter(before[name]) for name in ("encoder", "encoder_bias", "decoder"))

    x = batch(state.step)
    codes = (torch.einsum("bd,mfd->mbf", x, encoder) + bias[:, None]).relu()
    error = torch.einsum("mbf,mfd->mbd", codes, decoder) - x
    (error.square().sum(-1).mean(-1) + 0.1 * codes.sum(-1).mean(-1)).sum().backward()
    torch.optim.Adam([encoder, bias, decoder], lr=0.01).step()

    step(state, x, TRAINING, mechanisms)
    torch.testing.assert_close(state.stack.encoder[0, 2], encoder.detach()[0, 2], rtol=0, atol=1e-8)
    torch.testing.assert_close(state.stack.encoder_bias[0, 2], bias.detach()[0, 2], rtol=0, atol=1e-8)
    unit = decoder.detach()[0, 2] / decoder.detach()[0, 2].norm()
    torch.testing.assert_close(state.stack.decoder[0, 2], unit, rtol=0, atol=1e-8)
    assert (state.stack.encoder - encoder).abs().max() > 1e-4  # older features move otherwise


def test_a_reset_after_a_reset_is_possible():
    twice = {"first": Renew(after=2, feature=1), "second": Renew(after=4, member=1, feature=3)}
    state, _ = go(twice, 6)
    ages = state.adam.age["encoder"]
    assert ages[0, 1] == 4
    assert ages[1, 3] == 2
    assert ages[0, 0] == 6
    assert state.stack.encoder.isfinite().all()


def test_two_resets_in_one_step_both_happen():
    state, _ = go({"first": Renew(after=2, feature=1), "second": Renew(after=2, member=1, feature=3)}, 2)
    assert state.adam.age["encoder"][0, 1] == 0
    assert state.adam.age["encoder"][1, 3] == 0


class Undeclared(Mechanism):
    def signal(self, memory, stack):
        return {"l1": torch.ones(stack.members)}


class Reader(Mechanism):
    reads: ClassVar[frozenset[str]] = frozenset({"l11"})


def test_a_signal_that_was_not_declared_is_an_error():
    with pytest.raises(PluginFault, match="accepted: exactly"):
        go({"undeclared": Undeclared()}, 1)


def test_reading_an_unknown_signal_is_refused():
    with pytest.raises(UserError, match="reads 'l11', which is not a signal; did you mean 'l1'"):
        check_signals({"reader": Reader()})


class InfinitelySteep(Mechanism):
    """A finite cost, 0 at the start, whose gradient there is not."""

    def penalty(self, forward, memory, stack, signals):
        return stack.encoder_bias.abs().sqrt().sum(-1)


def test_a_gradient_that_is_not_finite_stops_before_anything_changed():
    mechanisms = {"steep": InfinitelySteep()}
    state, untouched = begin(mechanisms), begin(mechanisms)
    with pytest.raises(NotFinite, match="the gradient of member 0 is not finite at step 0"):
        step(state, batch(0), TRAINING, mechanisms)
    assert all(torch.equal(t, untouched.tensors()[name]) for name, t in state.tensors().items())


def test_what_a_step_reports_has_no_history():
    _, outcomes = go({"sparsity": Sparsity()}, 1)
    assert not any(cost.requires_grad for cost in outcomes[0].terms.values())
