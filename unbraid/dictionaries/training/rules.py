"""What an activation rule makes of pre-activations, and gradients back through it, written out.

`activations.py` holds the same mathematics for autograd. A rule at work, in lists (`fire`) or dense, says:

    codes     in lists in place, in the slots that held pre-activations
    counted   what a sparsity cost counts in each sample; None: Σ|code|
    again     codes from which the detached decoder must reconstruct as well, in the same slots; None: there are none
    back      from gradients in the codes, in what is counted and in `again` to those in pre-activations and weights
"""

from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.dictionaries.activations import BatchTopK, Gated, JumpRelu, Named
from unbraid.dictionaries.lists import Lists
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training import kernels


@dataclass(frozen=True)
class Learned:
    """Gradients in what a rule has made: its codes, what is counted, `again`; the first and last may be overwritten."""

    codes: Float[Tensor, "m b k"]
    counted: Float[Tensor, "m b"]
    again: Float[Tensor, "m b k"] | None


@dataclass(frozen=True)
class Back:
    """Gradients in pre-activations, slot by slot, and in the weights that a feature has one of, each `m f`."""

    in_pre: Float[Tensor, "m b k"]
    in_weights: Named
    total: Float[Tensor, "m f"]
    """The sum of the former over samples."""


def remembered(stack: Stack, lists: Lists) -> Named:
    """What the rule will remember of this batch, given what would fire."""
    if not isinstance(stack.activation, BatchTopK):
        return {}
    least = np.zeros(len(lists.counts), np.float32)
    kernels.find_least(lists.values, lists.counts, least)
    return {"threshold": stack.activation.follow(stack.memory["threshold"], torch.from_numpy(least)[:, None])}


def in_use(lists: Lists) -> np.ndarray:
    """The values in as few slots as do for the fullest sample."""
    return lists.values[..., : max(1, int(lists.counts.max(initial=0)))]


def sums(lists: Lists, slots: Tensor | np.ndarray) -> Float[Tensor, "m f"]:
    """The sum over each feature's slots."""
    totals = np.empty((len(lists.counts), lists.width), np.float32)
    kernels.sum_by_feature(lists.features, lists.counts, np.asarray(slots), totals)
    return torch.from_numpy(totals)


@dataclass(frozen=True)
class _AsItIs:
    """Relu, top-k, batch top-k: the code is the pre-activation."""

    lists: Lists
    counted: Float[Tensor, "m b"] | None = None
    again: np.ndarray | None = None

    def back(self, given: Learned) -> Back:
        bias = sums(self.lists, given.codes)
        return Back(given.codes, {"encoder_bias": bias}, bias)


@dataclass(frozen=True)
class _Jump:
    lists: Lists
    pre: np.ndarray
    thresholds: np.ndarray
    bandwidth: float
    counted: Float[Tensor, "m b"] | None
    again: np.ndarray | None = None

    @classmethod
    def of(cls, stack: Stack, lists: Lists, bandwidth: float) -> "_Jump":
        pre, fires = in_use(lists).copy(), np.empty(lists.counts.shape, np.float32)
        thresholds = stack.rule["log_threshold"].exp().numpy()
        kernels.fire_jump(lists.features, lists.counts, thresholds, pre, lists.values, fires)
        return cls(lists, pre, thresholds, bandwidth, torch.from_numpy(fires))

    def back(self, given: Learned) -> Back:
        in_log = np.empty(given.codes.shape, np.float32)
        kernels.back_through_jump(
            self.lists.features,
            self.lists.counts,
            self.thresholds,
            self.bandwidth,
            self.pre,
            given.counted.numpy(),
            given.codes.numpy(),
            in_log,
        )
        bias = sums(self.lists, given.codes)
        return Back(given.codes, {"encoder_bias": bias, "log_threshold": sums(self.lists, in_log)}, bias)


@dataclass(frozen=True)
class _Gates:
    lists: Lists
    gains: np.ndarray
    biases: np.ndarray
    """What is added to gain · gate: magnitude_bias - gain · encoder_bias."""
    bias: np.ndarray
    again: np.ndarray | None
    counted: Float[Tensor, "m b"] | None

    @classmethod
    def of(cls, stack: Stack, lists: Lists) -> "_Gates":
        gates, counted = in_use(lists).copy(), np.empty(lists.counts.shape, np.float32)
        gains = stack.rule["gain"].exp()
        biases = (stack.rule["magnitude_bias"] - gains * stack.encoder_bias).numpy()
        kernels.fire_gated(lists.features, lists.counts, gains.numpy(), biases, gates, lists.values, counted)
        return cls(lists, gains.numpy(), biases, stack.encoder_bias.numpy(), gates, torch.from_numpy(counted))

    def back(self, given: Learned) -> Back:
        assert given.again is not None
        again = given.again.numpy()
        in_gain, in_bias = np.empty(given.codes.shape, np.float32), np.empty(given.codes.shape, np.float32)
        kernels.back_through_gates(
            self.lists.features,
            self.lists.counts,
            self.gains,
            self.biases,
            self.bias,
            self.again,
            given.counted.numpy(),
            given.codes.numpy(),
            again,
            in_gain,
            in_bias,
        )
        named = {"encoder_bias": again, "gain": in_gain, "magnitude_bias": in_bias}
        weights = {name: sums(self.lists, slots) for name, slots in named.items()}
        total = weights["encoder_bias"] + torch.from_numpy(self.gains) * weights["magnitude_bias"]
        return Back(given.codes, weights, total)


Fires = _AsItIs | _Jump | _Gates
"""A rule at work on the lists of one batch."""


def fire(stack: Stack, lists: Lists) -> Fires:
    """Put codes in the slots of lists that hold pre-activations."""
    if isinstance(stack.activation, JumpRelu):
        return _Jump.of(stack, lists, stack.activation.bandwidth)
    return _Gates.of(stack, lists) if isinstance(stack.activation, Gated) else _AsItIs(lists)


@dataclass(frozen=True)
class Dense:
    """Relu at work on pre-activations of every feature; `pre` may be the codes themselves."""

    stack: Stack
    pre: Float[Tensor, "m b f"]
    codes: Float[Tensor, "m b f"]
    counted: Float[Tensor, "m b"] | None = None
    again: Float[Tensor, "m b f"] | None = None

    def back(self, given: Learned) -> Back:
        bias = torch.empty_like(self.stack.encoder_bias)
        kernels.through_relu(self.pre.numpy(), given.codes.numpy(), bias.numpy())
        return Back(given.codes, {"encoder_bias": bias}, bias)


class _DenseJump(Dense):
    def back(self, given: Learned) -> Back:
        bias, log = (torch.empty_like(self.stack.encoder_bias) for _ in range(2))
        assert isinstance(self.stack.activation, JumpRelu)
        thresholds, learned = (
            self.stack.rule["log_threshold"].exp().numpy(),
            (given.counted.numpy(), given.codes.numpy()),
        )
        kernels.through_jump(
            self.pre.numpy(), thresholds, self.stack.activation.bandwidth, *learned, bias.numpy(), log.numpy()
        )
        return Back(given.codes, {"encoder_bias": bias, "log_threshold": log}, bias)


class _DenseGates(Dense):
    def back(self, given: Learned) -> Back:
        assert given.again is not None
        stack, names = self.stack, ("encoder_bias", "gain", "magnitude_bias")
        sums = {name: torch.empty_like(stack.encoder_bias) for name in names}
        gains = stack.rule["gain"].exp()
        biases = stack.rule["magnitude_bias"] - gains * stack.encoder_bias
        arrays = (self.pre, gains, biases, stack.encoder_bias, given.counted, given.codes, given.again, *sums.values())
        kernels.through_gates(*(tensor.numpy() for tensor in arrays))
        return Back(given.codes, sums, sums["encoder_bias"] + gains * sums["magnitude_bias"])


def fire_dense(stack: Stack, pre: Float[Tensor, "m b f"]) -> Dense:
    """What fires where every feature has its place. Where the rule is relu, `pre` becomes the codes."""
    if isinstance(stack.activation, JumpRelu):
        codes = stack.activation.codes(pre, stack.tensors()).values
        return _DenseJump(stack, pre, codes, (codes > 0).sum(-1).to(pre.dtype))
    if isinstance(stack.activation, Gated):
        gates = pre.relu()
        return _DenseGates(stack, pre, stack.activation.codes(pre, stack.tensors()).values, gates.sum(-1), gates)
    codes = pre.relu_()
    return Dense(stack, codes, codes)
