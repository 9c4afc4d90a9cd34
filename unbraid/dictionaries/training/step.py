"""One training step, on one page: everything that happens to a stack between two batches.

signals → fire → encode → decode → costs → gradients → clip → Adam → unit rows → observe → edit
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import normalize

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config.plugins import returned
from unbraid.devices import Hardware, widest
from unbraid.dictionaries.activations import Fired
from unbraid.dictionaries.downstream import Downstream
from unbraid.dictionaries.mechanisms.mechanism import (
    Forward,
    Mechanisms,
    Memory,
    Reset,
    Signals,
    check_signals,
    edit_with,
    encode_with,
    gather_signals,
    observe_with,
    penalty_of,
    start_memory,
)
from unbraid.dictionaries.stack import Dictionary, Stack, Target
from unbraid.dictionaries.training.adam import Adam, clip_per_member, gradient_lengths
from unbraid.dictionaries.training.config import Training
from unbraid.schedule import Terms, check_finite, moment_after, rate_factor


@dataclass
class State:
    """Everything a training is, between two steps; saving its tensors and its step is enough to go on."""

    stack: Stack
    adam: Adam
    memories: dict[str, Memory]
    step: int = 0
    since_fired: Int[Tensor, "m f"] | None = None
    """Samples since each feature fired, where the activation brings dead features back."""

    def __post_init__(self) -> None:
        if self.since_fired is None and self.stack.activation.revival() is not None:
            shape = self.stack.members, self.stack.features
            self.since_fired = torch.zeros(shape, dtype=torch.int64, device=self.stack.device)

    @classmethod
    def start(
        cls,
        dictionary: Dictionary,
        dimensions: int,
        mechanisms: Mechanisms,
        seeds: Sequence[int],
        x: Float[Tensor, "b d"] | None = None,
        target: Target | None = None,
        rows: slice | None = None,
        hardware: Hardware | None = None,
    ) -> "State":
        """Before the first step; where features are shared out among processes, of these `rows` alone.

        Weights are drawn on the CPU, whatever the device: they begin alike everywhere.
        """
        check_signals(mechanisms)
        stack = Stack.start(dictionary, dimensions, seeds, x, target, rows)
        stack = stack if hardware is None else stack.to(hardware.device, hardware.precision)
        for name, mechanism in mechanisms.items():
            mechanism.check_stack(name, stack)
        memories = {name: start_memory(name, mechanism, stack) for name, mechanism in mechanisms.items()}
        return cls(stack, Adam.start(stack.parameters()), memories)

    def in_use(self, mechanisms: Mechanisms) -> Stack:
        """The stack as it would be used if training ended here: with what it keeps of the mechanisms."""
        signals, stack = gather_signals(mechanisms, self.memories, self.stack), self.stack
        for mechanism in mechanisms.values():
            stack = mechanism.use(stack, signals)
        return stack

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state by a flat name; the same storage, not copies."""
        groups = {"stack": self.stack.tensors(), "mean": self.adam.mean, "square": self.adam.square}
        groups |= {"age": self.adam.age} | {f"memory.{name}": memory for name, memory in self.memories.items()}
        groups |= {} if self.since_fired is None else {"features": {"since_fired": self.since_fired}}
        return {f"{group}.{name}": tensor for group, named in groups.items() for name, tensor in named.items()}


@dataclass(frozen=True)
class StepOutput:
    """What a step reports: its costs, and how many features fired in a sample, on average."""

    terms: Terms
    l0: Float[Tensor, "m"]


def step(
    state: State,
    x: Float[Tensor, "b d"],
    training: Training,
    mechanisms: Mechanisms,
    target: Float[Tensor, "b o"] | None = None,
    downstream: Downstream | None = None,
) -> StepOutput:
    """Advance `state` by one batch, in place. A cost that is not finite stops before anything changed.

    Reconstructions are held against the target: x itself, in an autoencoder. `downstream` is the model that goes on
    with them, where a mechanism needs it.
    """
    signals = gather_signals(mechanisms, state.memories, state.stack)

    weights = state.stack.requires_grad_copy()
    forward = run_forward(weights, x, mechanisms, signals, target, state.memories, downstream)
    terms = {"reconstruction": reconstruction_loss(forward, training), **rule_costs(forward, weights, training, state)}
    for mechanism in mechanisms.values():
        terms["reconstruction"] = terms["reconstruction"] * mechanism.reconstruction_weight
    for name, mechanism in mechanisms.items():
        cost = penalty_of(name, mechanism, forward, state.memories[name], weights, signals)
        if cost is not None:
            terms[name] = cost
    check_finite({f"loss term '{name}'": cost for name, cost in terms.items()}, state.step)

    named = weights.parameters()
    total = torch.stack(list(terms.values())).sum()  # over members too: members never share a parameter
    gradients = dict(zip(named, torch.autograd.grad(total, list(named.values())), strict=True))

    apply_gradients(state, gradients, gradient_lengths(gradients), rates(state, training), training)
    state.stack.remember(forward.fired.memory if forward.fired else {})
    return conclude(state, forward.detached(), terms, training, mechanisms, signals)


def rates(state: State, training: Training) -> Float[Tensor, "m"]:
    """Each member's learning rate at this step."""
    rate = torch.as_tensor(training.learning_rate, device=state.stack.device)
    return rate.expand(state.stack.members) * rate_factor(state.step, training)


@torch.no_grad()
def apply_gradients(
    state: State, gradients: dict[str, Tensor], lengths: Tensor, rate: Float[Tensor, "m"], training: Training
) -> None:
    """Clip, take Adam's step, and bring directions back to length one."""
    check_finite({"gradient": lengths}, state.step)
    if training.clip is not None:
        clip_per_member(gradients, lengths, training.clip)
    state.adam.update(state.stack.parameters(), gradients, rate)
    state.stack.normalize()


@torch.no_grad()
def conclude(
    state: State, forward: Forward, terms: Terms, training: Training, mechanisms: Mechanisms, signals: Signals
) -> StepOutput:
    """Let mechanisms observe and edit, and count the step."""
    if state.since_fired is not None:
        state.since_fired.add_(len(forward.x)).masked_fill_(forward.codes.counts() > 0, 0)
    forward = replace(forward, moment=moment_after(state.step, training))
    for name, mechanism in mechanisms.items():
        state.memories[name] = observe_with(name, mechanism, forward, state.memories[name], state.stack, signals)
    resets = [
        edit_with(name, mechanism, forward, state.memories[name], state.stack, signals)
        for name, mechanism in mechanisms.items()
    ]
    for reset in resets:
        if reset is not None:
            apply_reset(state, reset, mechanisms)
    state.step += 1
    l0 = forward.codes.l0().to(widest(forward.x.device))
    return StepOutput({name: cost.detach() for name, cost in terms.items()}, l0.mean(-1))


def run_forward(
    stack: Stack,
    x: Float[Tensor, "b d"],
    mechanisms: Mechanisms,
    signals: Signals,
    target: Float[Tensor, "b o"] | None = None,
    memories: Mapping[str, Memory] | None = None,
    downstream: Downstream | None = None,
) -> Forward:
    """What fires and what it makes; without memories, as they are at the start."""
    if memories is None:
        memories = {name: start_memory(name, mechanism, stack) for name, mechanism in mechanisms.items()}
    fired = fire(stack, stack.pre_activations(x))
    codes = encode(fired.codes, stack, mechanisms, signals, memories)
    seen = fired.seen and encode(fired.seen, stack, mechanisms, signals, memories)
    after = replace(fired, codes=codes, seen=seen)
    would_fire = fired.seen or fired.codes
    return Forward(
        x, codes, stack.decode(codes, x), after, would_fire=would_fire, other_target=target, downstream=downstream
    )


def fire(stack: Stack, pre: Float[Tensor, "m b f"]) -> Fired:
    """What the activation rule makes of pre-activations, for the same members, samples and features."""
    fired = stack.activation.fire(pre, stack.tensors())
    if (*fired.codes.values.shape[:2], fired.codes.width) != pre.shape:
        found = (*fired.codes.values.shape[:2], fired.codes.width)
        raise returned(stack.activation.codes, f"codes of shape {found}; accepted: {tuple(pre.shape)}")
    return fired


def encode(
    codes: Codes, stack: Stack, mechanisms: Mechanisms, signals: Signals, memories: Mapping[str, Memory]
) -> Codes:
    """What fires, of what would fire, after every mechanism that lowers or silences."""
    for name, mechanism in mechanisms.items():
        codes = encode_with(name, mechanism, codes, memories[name], stack, signals)
    return codes


def rule_costs(forward: Forward, stack: Stack, training: Training, state: State) -> Terms:
    """What the activation itself costs; `auxiliary` is the loss of what the detached decoder must explain."""
    fired, costs = forward.fired, auxk_cost(forward, stack, training, state)
    if fired is None or fired.again is None:
        return {**costs, **fired.costs} if fired else costs
    decoded = stack.detached().decode(fired.again, forward.x)
    again = Forward(forward.x, fired.again, decoded, other_target=forward.other_target)
    return {**costs, **fired.costs, "auxiliary": reconstruction_loss(again, training)}


def auxk_cost(forward: Forward, stack: Stack, training: Training, state: State) -> Terms:
    """The loss of what is reconstructed with the help of dead features; see `AuxK`.

    Only they learn from it, and a pre-bias through their pre-activations.
    """
    auxk = stack.activation.revival()
    if auxk is None or state.since_fired is None:
        return {}
    dead = state.since_fired >= auxk.dead_after
    residual = auxk.of_residual(forward.x, dead, stack.encoder, stack.shifted_bias(), stack.decoder)
    if residual is None:
        return {"auxk": forward.reconstruction.new_zeros(stack.members)}
    helped = replace(forward, reconstruction=forward.reconstruction.detach() + residual)
    return {"auxk": auxk.weight * reconstruction_loss(helped, training)}


def reconstruction_loss(forward: Forward, training: Training) -> Float[Tensor, "m"]:
    """Squared error of a sample, summed over dimensions or their mean (superposition study), or its length (`norm`)."""
    if training.reconstruction_loss == "norm":
        return torch.linalg.vector_norm(forward.reconstruction - forward.target, dim=2).mean(1)
    squares = (forward.reconstruction - forward.target).square()
    return squares.mean((1, 2)) if training.reconstruction_loss == "mean_square" else squares.sum(2).mean(1)


def apply_reset(state: State, reset: Reset, mechanisms: Mechanisms) -> None:
    """A feature that starts anew is new to everyone: weights, moments, age, and every mechanism's memory."""
    stack, anew = state.stack, reset.features
    stack.encoder[anew], stack.decoder[anew] = reset.encoder[anew], normalize(reset.decoder[anew], dim=-1)
    stack.encoder_bias[anew] = 0
    for name, beginning in stack.activation.parameters(stack.members, stack.features).items():
        stack.rule[name][anew] = beginning.to(stack.rule[name])[anew]
    state.adam.forget(anew)
    if state.since_fired is not None:
        state.since_fired[anew] = 0
    for name, mechanism in mechanisms.items():
        for key, beginning in mechanism.start(stack).items():
            if beginning.shape[:2] == anew.shape:
                state.memories[name][key][anew] = beginning[anew]
