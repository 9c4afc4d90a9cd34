"""Activation rules: from pre-activations to the codes that fire. One config class per rule.

| method       | what                                                                               | shape   |
|--------------|------------------------------------------------------------------------------------|---------|
| `parameters` | the rule's own weights at the start: trained, saved, and reset with their feature  | `m f`   |
| `memory`     | what it remembers between steps, from each member's seed: saved, never trained     | `m`     |
| `codes`      | what fires when a dictionary is used                                               | codes   |
| `fire`       | what fires in a training step, and what that costs beside the squared error        | `Fired` |

`codes` and `fire` are functions of the pre-activations and the stack's tensors alone; random draws come from a seed and
a count kept in memory. So company does not matter, and a resumed training draws the same.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Config
from unbraid.dictionaries.auxk import AuxK

Named = dict[str, Tensor]
Weights = Mapping[str, Tensor]
"""Every tensor of a stack by name: encoder, encoder_bias, decoder, …, and those of the rule."""

NO_THRESHOLD = -1.0
"""The threshold of batch top-k before the first training step."""


@dataclass(frozen=True)
class Fired:
    """What a training step makes of pre-activations."""

    codes: Codes
    counted: Float[Tensor, "m b"] | None = None
    """What the sparsity cost counts in each sample; None: Σ|code| of the codes that are decoded in the end."""
    again: Codes | None = None
    """Codes from which the detached decoder must reconstruct as well."""
    costs: Named = field(default_factory=dict)
    """Costs of the rule itself, each `m`."""
    memory: Named = field(default_factory=dict)
    """What it will remember."""
    seen: Codes | None = None
    """What counts as having fired, where that is not what was decoded."""


class Activation(Config, ABC):
    """The base class of activation rules: from pre-activations (m, b, f) to codes.

    A subclass declares its settings as fields and implements `codes`. Override `fire` where training differs from use,
    `parameters` for trained weights (m, f), and `memory` for what is kept between steps (m,).

    Attributes
    ----------
    codes_held : int
        Numbers per sample and feature that a training step holds in memory, at most.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> class Absolute(ub.Activation):
    ...     def codes(self, pre, weights):
    ...         return ub.Codes.dense(pre.abs())
    >>> Absolute().fire(torch.tensor([[[1.0, -2.0]]]), {}).codes.to_dense().tolist()
    [[[1.0, 2.0]]]
    """

    codes_held: ClassVar[int] = 9
    """How many numbers per sample and feature a training step holds at its height, at most (docs/scale.md)."""

    counts_codes: ClassVar[bool] = True
    """Whether the sparsity cost counts Σ|code|, and not something of the rule's own."""

    def parameters(self, members: int, features: int) -> Named:
        return {}

    def memory(self, seeds: Sequence[int]) -> Named:
        return {}

    @abstractmethod
    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        """What fires, and how strongly."""

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        return Fired(self.codes(pre, weights))

    def probabilities(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Float[Tensor, "m b f"]:
        """How likely each feature is to fire: 0 or 1, but for rules that are not sure."""
        return (self.codes(pre, weights).to_dense() != 0).to(pre.dtype)

    def threshold_of(self, weights: Weights) -> Float[Tensor, "m f"] | None:
        """What a pre-activation must exceed to fire, per member and feature; None where the rule has no threshold."""
        return None

    def revival(self) -> AuxK | None:
        """How dead features are brought back in training; None where they are not."""
        return None


class Relu(Activation):
    """Every positive pre-activation fires. Needs a sparsity cost (`Sparsity`) to become sparse.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> ub.Relu().codes(torch.tensor([[[1.0, -2.0, 3.0]]])).to_dense().tolist()
    [[[1.0, 0.0, 3.0]]]
    """

    codes_held: ClassVar[int] = 4
    kind: Literal["relu"] = "relu"
    """The rule's name in a configuration."""

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights | None = None) -> Codes:
        return Codes.dense(pre.relu())


class TopK(Activation):
    """The k largest pre-activations of each sample fire, where they are positive (Gao et al. 2024).

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> ub.TopK(k=1).codes(torch.tensor([[[1.0, -2.0, 3.0]]])).to_dense().tolist()
    [[[0.0, 0.0, 3.0]]]
    """

    codes_held: ClassVar[int] = 10
    kind: Literal["topk"] = "topk"
    """The rule's name in a configuration."""
    k: int = Field(ge=1, le=1 << 24)
    """Number of features that fire in a sample, at most; more reconstruct better and are less sparse."""
    auxk: AuxK = AuxK()
    """The cost by which dead features learn; `auxk.weight = 0` turns it off."""

    def revival(self) -> AuxK | None:
        return self.auxk if self.auxk.weight else None

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights | None = None) -> Codes:
        values, features = pre.topk(self.k, dim=-1, sorted=False)
        return Codes(features, values.relu(), pre.shape[-1])


class BatchTopK(Activation):
    """Batch top-k (Bussmann et al. 2024): k features fire per sample on average, not in every sample.

        training      the k·b largest pre-activations of the whole batch fire, where they are positive
        threshold     ← momentum · threshold + (1-momentum) · the smallest that fired     (the first is taken as it is)
        evaluation    what exceeds the threshold fires; before training, what is positive

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> rule = ub.BatchTopK(k=1)
    >>> pre = torch.tensor([[[4.0, 3.0, 0.5], [1.0, 2.0, 0.1]]])
    >>> rule.fire(pre, rule.memory(seeds=[0])).codes.to_dense().tolist()
    [[[4.0, 3.0, 0.0], [0.0, 0.0, 0.0]]]
    """

    codes_held: ClassVar[int] = 14
    kind: Literal["batchtopk"] = "batchtopk"
    """The rule's name in a configuration."""
    k: int = Field(ge=1, le=1 << 24)
    """Number of features that fire in a sample, on average; more reconstruct better and are less sparse."""
    momentum: float = Field(default=0.99, ge=0, lt=1)
    """How slowly the threshold follows the smallest value that fired, 0 to 1; nearer to 1 is slower and steadier."""
    auxk: AuxK = AuxK()
    """The cost by which dead features learn; `auxk.weight = 0` turns it off."""

    def revival(self) -> AuxK | None:
        return self.auxk if self.auxk.weight else None

    def memory(self, seeds: Sequence[int]) -> Named:
        return {"threshold": torch.full((len(seeds),), NO_THRESHOLD, dtype=torch.float64)}

    def threshold_of(self, weights: Weights) -> Float[Tensor, "m f"]:
        encoder = weights["encoder"]
        return weights["threshold"].clamp_min(0).to(encoder.dtype)[:, None].expand(encoder.shape[:2])

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        threshold = weights["threshold"].clamp_min(0).to(pre.dtype)[:, None, None]
        return Codes.dense(torch.where(pre > threshold, pre, 0))

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        flat = pre.relu().flatten(1)
        values, indices = flat.topk(self.k * pre.shape[1], dim=-1, sorted=False)
        codes = Codes.dense(torch.zeros_like(flat).scatter(-1, indices, values).view_as(pre))
        return Fired(codes, memory={"threshold": self.follow(weights["threshold"], values.detach())})

    def follow(self, threshold: Float[Tensor, "m"], fired: Float[Tensor, "m n"]) -> Float[Tensor, "m"]:
        """The threshold after a step in which these fired; what is 0 did not."""
        least = fired.where(fired > 0, torch.inf).amin(-1).to(threshold.dtype)
        moved = torch.where(threshold < 0, least, self.momentum * threshold + (1 - self.momentum) * least)
        return torch.where(least.isfinite(), moved, threshold)


class JumpRelu(Activation):
    """Jump-relu (Rajamanoharan et al. 2024): a feature fires where it exceeds its own threshold θ, which is learned.

        code = z · H(z - θ)        θ = exp(log_threshold)        sparsity counts how many fire: Σ_f H(z_f - θ_f)

    The step H has no gradient in θ, so training uses estimates, with K a rectangle, 1 within ±½, and ε the bandwidth:

        ∂code/∂z = H(z - θ)        ∂code/∂θ = -(θ/ε) · K((z - θ)/ε)
        ∂H/∂z    = 0               ∂H/∂θ    = -(1/ε) · K((z - θ)/ε)

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> rule = ub.JumpRelu(threshold=0.5)
    >>> rule.codes(torch.tensor([[[0.25, 0.75]]]), rule.parameters(members=1, features=2)).to_dense().tolist()
    [[[0.0, 0.75]]]
    """

    codes_held: ClassVar[int] = 8
    counts_codes: ClassVar[bool] = False
    kind: Literal["jumprelu"] = "jumprelu"
    """The rule's name in a configuration."""
    threshold: float = Field(default=0.1, gt=0)
    """Initial threshold of every feature, in units of pre-activations; a higher one starts sparser."""
    bandwidth: float = Field(default=0.05, gt=0)
    """Width of the window around a threshold that gives it gradients, in pre-activations; wider is smoother."""

    def parameters(self, members: int, features: int) -> Named:
        return {"log_threshold": torch.full((members, features), math.log(self.threshold))}

    def threshold_of(self, weights: Weights) -> Float[Tensor, "m f"]:
        return weights["log_threshold"].exp()

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        return Codes.dense(torch.where(pre > weights["log_threshold"].exp()[:, None], pre, 0))

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        values, fires = jump(pre, weights["log_threshold"].exp()[:, None], self.bandwidth)
        return Fired(Codes.dense(values), fires.sum(-1))


def jump(pre: Tensor, threshold: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
    """z · H(z - θ) and H(z - θ), with the gradients that `JumpRelu` states."""
    return _Jump.apply(pre, threshold, bandwidth)  # pyright: ignore[reportReturnType]


class _Jump(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        fires = (pre > threshold).to(pre.dtype)
        return pre * fires, fires

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        in_values, in_fires = gradients
        pre, threshold = ctx.saved_tensors
        near = ((pre - threshold).abs() < ctx.bandwidth / 2) / ctx.bandwidth
        in_threshold = -(near * (threshold * in_values + in_fires)).sum(1, keepdim=True)
        return in_values * (pre > threshold), in_threshold, None


class Gated(Activation):
    """Gated (Rajamanoharan et al. 2024): a gate decides whether a feature fires, a magnitude how strongly.

        gate = Wx + encoder_bias      magnitude = relu(exp(gain) · Wx + magnitude_bias)      code = H(gate) · magnitude

    `Sparsity` counts Σ relu(gate), so it does not shrink magnitudes. The step H has no gradient, so the gate learns
    from an auxiliary loss: relu(gate), decoded by the detached decoder, must reconstruct x as well.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> rule = ub.Gated()
    >>> weights = {**rule.parameters(members=1, features=2), "encoder_bias": torch.zeros(1, 2)}
    >>> rule.codes(torch.tensor([[[1.0, -1.0]]]), weights).to_dense().tolist()
    [[[1.0, 0.0]]]
    """

    counts_codes: ClassVar[bool] = False
    kind: Literal["gated"] = "gated"
    """The rule's name in a configuration."""

    def parameters(self, members: int, features: int) -> Named:
        return {name: torch.zeros(members, features) for name in ("gain", "magnitude_bias")}

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        return Codes.dense(torch.where(pre > 0, magnitudes(pre, weights), 0))

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        gate = Codes.dense(pre.relu())
        return Fired(self.codes(pre, weights), gate.l1(), again=gate)


def magnitudes(pre: Float[Tensor, "m b f"], weights: Weights) -> Float[Tensor, "m b f"]:
    """relu(exp(gain) · Wx + magnitude_bias), from the one product Wx that gates and magnitudes share."""
    gain = weights["gain"].exp()
    bias = weights["magnitude_bias"] - gain * weights["encoder_bias"]
    return (gain[:, None] * pre + bias[:, None]).relu()
