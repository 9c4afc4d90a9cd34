"""What an activation rule makes of pre-activations, and gradients back through it, written out.

`activations.py` holds the same mathematics for autograd. A rule at work, in lists (`fire`) or dense, says:

    codes     in lists in place, in the slots that held pre-activations
    counted   what a sparsity cost counts in each sample; None: Σ|code|
    again     codes from which the detached decoder must reconstruct as well, in the same slots; None: there are none
    back      from gradients in the codes, in what is counted and in `again` to those in pre-activations and weights
"""

from dataclasses import dataclass

from unbraid.axes import Float, Tensor
from unbraid.dictionaries import operations
from unbraid.dictionaries.activations import BatchTopK, Gated, JumpRelu, Named
from unbraid.dictionaries.lists import Lists
from unbraid.dictionaries.stack import Stack


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
    least = operations.of(lists.values).least(lists)
    return {"threshold": stack.activation.follow(stack.memory["threshold"], least[:, None])}


def sums(lists: Lists, slots: Float[Tensor, "m b k"]) -> Float[Tensor, "m f"]:
    """The sum over each feature's slots."""
    return operations.of(slots).sum_by_feature(lists, slots)


@dataclass(frozen=True)
class _AsItIs:
    """Relu, top-k, batch top-k: the code is the pre-activation."""

    lists: Lists
    counted: Float[Tensor, "m b"] | None = None
    again: Float[Tensor, "m b k"] | None = None

    def back(self, given: Learned) -> Back:
        bias = sums(self.lists, given.codes)
        return Back(given.codes, {"encoder_bias": bias}, bias)


@dataclass(frozen=True)
class _Jump:
    lists: Lists
    pre: Float[Tensor, "m b k"]
    thresholds: Float[Tensor, "m f"]
    bandwidth: float
    counted: Float[Tensor, "m b"] | None
    again: Float[Tensor, "m b k"] | None = None

    @classmethod
    def of(cls, stack: Stack, lists: Lists, bandwidth: float) -> "_Jump":
        thresholds = stack.rule["log_threshold"].exp()
        pre, fires = operations.of(lists.values).fire_jump(lists, thresholds)
        return cls(lists, pre, thresholds, bandwidth, fires)

    def back(self, given: Learned) -> Back:
        in_log = operations.of(given.codes).back_through_jump(
            self.lists, self.thresholds, self.bandwidth, self.pre, given.counted, given.codes
        )
        bias = sums(self.lists, given.codes)
        return Back(given.codes, {"encoder_bias": bias, "log_threshold": sums(self.lists, in_log)}, bias)


@dataclass(frozen=True)
class _Gates:
    lists: Lists
    gains: Float[Tensor, "m f"]
    biases: Float[Tensor, "m f"]
    """What is added to gain · gate: magnitude_bias - gain · encoder_bias."""
    bias: Float[Tensor, "m f"]
    again: Float[Tensor, "m b k"] | None
    counted: Float[Tensor, "m b"] | None

    @classmethod
    def of(cls, stack: Stack, lists: Lists) -> "_Gates":
        gains = stack.rule["gain"].exp()
        biases = stack.rule["magnitude_bias"] - gains * stack.encoder_bias
        gates, counted = operations.of(lists.values).fire_gated(lists, gains, biases)
        return cls(lists, gains, biases, stack.encoder_bias, gates, counted)

    def back(self, given: Learned) -> Back:
        assert given.again is not None
        assert self.again is not None
        arrays = self.gains, self.biases, self.bias, self.again, given.counted, given.codes, given.again
        in_gain, in_bias = operations.of(given.codes).back_through_gates(self.lists, *arrays)
        named = {"encoder_bias": given.again, "gain": in_gain, "magnitude_bias": in_bias}
        weights = {name: sums(self.lists, slots) for name, slots in named.items()}
        total = weights["encoder_bias"] + self.gains * weights["magnitude_bias"]
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
        bias = operations.of(self.pre).through_relu(self.pre, given.codes)
        return Back(given.codes, {"encoder_bias": bias}, bias)


class _DenseJump(Dense):
    def back(self, given: Learned) -> Back:
        assert isinstance(self.stack.activation, JumpRelu)
        thresholds, bandwidth = self.stack.rule["log_threshold"].exp(), self.stack.activation.bandwidth
        bias, log = operations.of(self.pre).through_jump(self.pre, thresholds, bandwidth, given.counted, given.codes)
        return Back(given.codes, {"encoder_bias": bias, "log_threshold": log}, bias)


class _DenseGates(Dense):
    def back(self, given: Learned) -> Back:
        assert given.again is not None
        stack, names = self.stack, ("encoder_bias", "gain", "magnitude_bias")
        gains = stack.rule["gain"].exp()
        biases = stack.rule["magnitude_bias"] - gains * stack.encoder_bias
        arrays = self.pre, gains, biases, stack.encoder_bias, given.counted, given.codes, given.again
        sums = dict(zip(names, operations.of(self.pre).through_gates(*arrays), strict=True))
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
