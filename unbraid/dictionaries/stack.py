"""m dictionaries as one set of tensors; one dictionary is a stack of one.

pre = (x - pre_bias) · encoderᵀ + encoder_bias      codes = activation(pre)
x̂   = codes · decoder + pre_bias                    every decoder row has length one
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Record
from unbraid.dictionaries.activation import Activation, Named
from unbraid.dictionaries.activations import AnyActivation, BatchTopK, Relu, TopK
from unbraid.randomness import stream


class Dictionary(Record):
    """The settings of one dictionary: how many features, what makes them fire, how it starts.

    `pre_bias` centres inputs first. It starts `tied`: random unit rows, encoder and decoder alike; or as seed 002
    `published`: an orthogonal decoder, and the encoder and bias of torch's `Linear`, uniform within ±1/√d.
    """

    features: int = Field(default=1024, ge=1, le=1 << 24)
    activation: AnyActivation = Relu()
    pre_bias: bool = False
    start: Literal["tied", "published"] = "tied"

    @model_validator(mode="after")
    def fire_within_the_features(self) -> Self:
        if isinstance(self.activation, TopK | BatchTopK) and self.activation.k > self.features:
            raise ValueError(
                f"activation.k is {self.activation.k}, more than the dictionary's {self.features} features; "
                f"accepted: 1 to {self.features}"
            )
        return self


@dataclass(frozen=True)
class Stack:
    """The tensors of m dictionaries. Training changes them in place; nothing else does."""

    encoder: Float[Tensor, "m f d"]
    encoder_bias: Float[Tensor, "m f"]
    decoder: Float[Tensor, "m f d"]
    pre_bias: Float[Tensor, "m d"] | None
    activation: Activation
    rule: Named = field(default_factory=dict)
    """The activation's own weights, each `m f`."""
    memory: Named = field(default_factory=dict)
    """What the activation remembers between steps, each `m`."""

    @classmethod
    def start(cls, dictionary: Dictionary, dimensions: int, seeds: Sequence[int]) -> "Stack":
        """As the settings say, each member from its own seed."""
        begin = _tied if dictionary.start == "tied" else _published
        drawn = [begin(stream(seed, "rows"), dictionary.features, dimensions) for seed in seeds]
        encoder, bias, decoder = (torch.from_numpy(np.stack(part)) for part in zip(*drawn, strict=True))
        pre_bias = torch.zeros(len(seeds), dimensions) if dictionary.pre_bias else None
        rule = dictionary.activation.parameters(len(seeds), dictionary.features)
        memory = dictionary.activation.memory(seeds)
        return cls(encoder, bias, decoder, pre_bias, dictionary.activation, rule, memory)

    @classmethod
    def of(cls, tensors: Named, activation: Activation) -> "Stack":
        """The stack that has these `tensors()`."""
        rule = {name: tensors[name] for name in activation.parameters(1, 1)}
        memory = {name: tensors[name] for name in activation.memory([0])}
        rest = {name: tensor for name, tensor in tensors.items() if name not in {**rule, **memory}}
        return cls(**{"pre_bias": None, **rest}, activation=activation, rule=rule, memory=memory)

    def parameters(self) -> Named:
        """What gradients may change, by name."""
        named = {"encoder": self.encoder, "encoder_bias": self.encoder_bias, "decoder": self.decoder, **self.rule}
        return named if self.pre_bias is None else {**named, "pre_bias": self.pre_bias}

    def tensors(self) -> Named:
        """All there is to save, by name."""
        return {**self.parameters(), **self.memory}

    def with_parameters(self, parameters: Named) -> "Stack":
        rule = {name: parameters.get(name, own) for name, own in self.rule.items()}
        return replace(self, **{name: p for name, p in parameters.items() if name not in rule}, rule=rule)

    def leaves(self) -> "Stack":
        """The same tensors, seen by autograd."""
        return self.with_parameters({name: p.detach().requires_grad_() for name, p in self.parameters().items()})

    def held_still(self) -> "Stack":
        """The same tensors, unseen by autograd."""
        return self.with_parameters({name: p.detach() for name, p in self.parameters().items()})

    def member(self, index: int) -> "Stack":
        """One member, as a stack of one."""
        return Stack.of({name: t[index : index + 1] for name, t in self.tensors().items()}, self.activation)

    @property
    def members(self) -> int:
        return self.encoder.shape[0]

    @property
    def features(self) -> int:
        return self.encoder.shape[1]

    @property
    def directions(self) -> Float[Tensor, "m f d"]:
        """What each feature writes: unit rows."""
        return self.decoder

    def shifted_bias(self) -> Float[Tensor, "m f"]:
        """The bias that is left when the pre-bias is taken from the product instead of from x."""
        if self.pre_bias is None:
            return self.encoder_bias
        return self.encoder_bias - (self.encoder @ self.pre_bias[..., None])[..., 0]

    def pre_activations(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "m b f"]:
        return torch.baddbmm(self.shifted_bias()[:, None, :], x.expand(self.members, *x.shape), self.encoder.mT)

    def encode(self, x: Float[Tensor, "b d"]) -> Codes:
        return self.activation.codes(self.pre_activations(x), self.tensors())

    def probabilities(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "m b f"]:
        """How likely each feature is to fire: the posterior of a variational dictionary; 0 or 1 in any other."""
        return self.activation.probabilities(self.pre_activations(x), self.tensors())

    def decode(self, codes: Codes) -> Float[Tensor, "m b d"]:
        reconstruction = codes.decode(self.decoder)
        return reconstruction if self.pre_bias is None else reconstruction + self.pre_bias[:, None, :]

    def remember(self, memory: Named) -> None:
        """Give the activation its new memory, in place."""
        for name, tensor in memory.items():
            self.memory[name].copy_(tensor)

    def normalise(self) -> None:
        """Bring every decoder row back to length one, in place."""
        self.decoder.div_(self.decoder.norm(dim=-1, keepdim=True).clamp_min(1e-12))


Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Encoder, its bias, and decoder of one member."""


def _tied(rng: np.random.Generator, features: int, dimensions: int) -> Drawn:
    rows = _unit(rng.standard_normal((features, dimensions), dtype=np.float32))
    return rows, np.zeros(features, np.float32), rows.copy()


def _published(rng: np.random.Generator, features: int, dimensions: int) -> Drawn:
    bound = dimensions**-0.5
    encoder = rng.uniform(-bound, bound, (features, dimensions)).astype(np.float32)
    bias = rng.uniform(-bound, bound, features).astype(np.float32)
    wide = rng.standard_normal((max(features, dimensions), min(features, dimensions)))
    orthogonal, triangle = np.linalg.qr(wide)
    orthogonal *= np.sign(np.diag(triangle))  # as torch.nn.init.orthogonal_ makes it uniform
    decoder = orthogonal if features >= dimensions else orthogonal.T
    return encoder, bias, _unit(decoder).astype(np.float32)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
