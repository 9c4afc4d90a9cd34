"""One training step, on one page: everything that happens to a stack between two batches.

signals → encode → decode → costs → gradients → clip → Adam → unit rows → observe → edit
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import normalize

from unbraid.axes import Float, Tensor
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.errors import NotFinite
from unbraid.mechanisms.mechanism import Forward, Mechanisms, Memory, Reset, Signals, gather_signals, refuse_loose_ends
from unbraid.training.adam import Adam, clip_per_member, gradient_lengths
from unbraid.training.schedule import Training, rate_factor

Terms = dict[str, Tensor]
"""The costs of a step by name, each `m`."""


@dataclass
class State:
    """Everything a training is, between two steps; saving its tensors and its step is enough to go on."""

    stack: Stack
    adam: Adam
    memories: dict[str, Memory]
    step: int = 0

    @classmethod
    def start(cls, dictionary: Dictionary, dimensions: int, mechanisms: Mechanisms, seeds: Sequence[int]) -> "State":
        refuse_loose_ends(mechanisms)
        stack = Stack.start(dictionary, dimensions, seeds)
        memories = {name: mechanism.start(stack) for name, mechanism in mechanisms.items()}
        return cls(stack, Adam.start(stack.parameters()), memories)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state by a flat name; the same storage, not copies."""
        groups = {"stack": self.stack.tensors(), "mean": self.adam.mean, "square": self.adam.square}
        groups |= {"age": self.adam.age} | {f"memory.{name}": memory for name, memory in self.memories.items()}
        return {f"{group}.{name}": tensor for group, named in groups.items() for name, tensor in named.items()}


@dataclass(frozen=True)
class Outcome:
    """What a step reports: its costs, and how many features fired in a sample, on average."""

    terms: Terms
    l0: Float[Tensor, "m"]


def step(state: State, x: Float[Tensor, "b d"], training: Training, mechanisms: Mechanisms) -> Outcome:
    """Advance `state` by one batch, in place. A cost that is not finite stops before anything changed."""
    signals = gather_signals(mechanisms, state.memories, state.stack)

    leaves = state.stack.leaves()
    forward = run_forward(leaves, x, mechanisms, signals)
    terms = {"fidelity": fidelity(forward, training), **own_costs(forward, leaves, training)}
    for name, mechanism in mechanisms.items():
        cost = mechanism.penalty(forward, leaves, signals)
        if cost is not None:
            terms[name] = cost
    refuse_infinite({f"loss term '{name}'": cost for name, cost in terms.items()}, state.step)

    named = leaves.parameters()
    total = torch.stack(list(terms.values())).sum()  # over members too: members never share a parameter
    gradients = dict(zip(named, torch.autograd.grad(total, list(named.values())), strict=True))

    apply_gradients(state, gradients, gradient_lengths(gradients), rates(state, training), training)
    state.stack.remember(forward.fired.memory if forward.fired else {})
    return conclude(state, forward.detached(), terms, mechanisms, signals)


def rates(state: State, training: Training) -> Float[Tensor, "m"]:
    """Each member's learning rate at this step."""
    return torch.as_tensor(training.learning_rate).expand(state.stack.members) * rate_factor(state.step, training)


@torch.no_grad()
def apply_gradients(
    state: State, gradients: dict[str, Tensor], lengths: Tensor, rate: Float[Tensor, "m"], training: Training
) -> None:
    """Clip, take Adam's step, and bring directions back to length one."""
    refuse_infinite({"gradient": lengths}, state.step)
    if training.clip is not None:
        clip_per_member(gradients, lengths, training.clip)
    state.adam.update(state.stack.parameters(), gradients, rate)
    state.stack.normalise()


@torch.no_grad()
def conclude(state: State, forward: Forward, terms: Terms, mechanisms: Mechanisms, signals: Signals) -> Outcome:
    """Let mechanisms observe and edit, and count the step."""
    for name, mechanism in mechanisms.items():
        state.memories[name] = mechanism.observe(forward, state.memories[name], state.stack, signals)
    resets = [m.edit(forward, state.memories[name], state.stack, signals) for name, m in mechanisms.items()]
    for reset in resets:
        if reset is not None:
            apply_reset(state, reset, mechanisms)
    state.step += 1
    return Outcome({name: cost.detach() for name, cost in terms.items()}, forward.codes.l0().double().mean(-1))


def run_forward(stack: Stack, x: Float[Tensor, "b d"], mechanisms: Mechanisms, signals: Signals) -> Forward:
    pre = stack.pre_activations(x)
    for mechanism in mechanisms.values():
        pre = mechanism.encode(pre, signals)
    fired = stack.activation.fire(pre, stack.tensors())
    return Forward(x, fired.codes, stack.decode(fired.codes), fired)


def own_costs(forward: Forward, stack: Stack, training: Training) -> Terms:
    """What the activation itself costs; `auxiliary` is the squared error of what a decoder held still must explain."""
    fired = forward.fired
    if fired is None or fired.again is None:
        return fired.costs if fired else {}
    again = Forward(forward.x, fired.again, stack.held_still().decode(fired.again))
    return {**fired.costs, "auxiliary": fidelity(again, training)}


def fidelity(forward: Forward, training: Training) -> Float[Tensor, "m"]:
    """Squared error per sample: summed over dimensions, or their mean (`mean_square`, as in seed 002)."""
    squares = (forward.reconstruction - forward.x).square()
    return squares.mean((1, 2)) if training.fidelity == "mean_square" else squares.sum(2).mean(1)


def refuse_infinite(terms: Terms, step: int) -> None:
    for name, cost in terms.items():
        bad = (~cost.isfinite()).nonzero()
        if len(bad):
            raise NotFinite(step, name, int(bad[0]))


def apply_reset(state: State, reset: Reset, mechanisms: Mechanisms) -> None:
    """A feature that starts anew is new to everyone: weights, moments, age, and every mechanism's memory."""
    stack, anew = state.stack, reset.features
    stack.encoder[anew], stack.decoder[anew] = reset.encoder[anew], normalize(reset.decoder[anew], dim=-1)
    stack.encoder_bias[anew] = 0
    for name, beginning in stack.activation.parameters(stack.members, stack.features).items():
        stack.rule[name][anew] = beginning.to(stack.rule[name].dtype)[anew]
    state.adam.forget(anew)
    for name, mechanism in mechanisms.items():
        for key, beginning in mechanism.start(stack).items():
            if beginning.shape[:2] == anew.shape:
                state.memories[name][key][anew] = beginning[anew]
