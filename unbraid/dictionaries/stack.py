"""m dictionaries as one set of tensors; one dictionary is a stack of one.

pre = (x - pre_bias) · encoderᵀ + encoder_bias      codes = activation(pre)
x̂   = codes · decoder + pre_bias                    every decoder row has length one
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Record
from unbraid.dictionaries.activations import Activation, AnyActivation, Relu, TopK
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
        if isinstance(self.activation, TopK) and self.activation.k > self.features:
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

    @classmethod
    def start(cls, dictionary: Dictionary, dimensions: int, seeds: Sequence[int]) -> "Stack":
        """As the settings say, each member from its own seed."""
        begin = _tied if dictionary.start == "tied" else _published
        drawn = [begin(stream(seed, "rows"), dictionary.features, dimensions) for seed in seeds]
        encoder, bias, decoder = (torch.from_numpy(np.stack(part)) for part in zip(*drawn, strict=True))
        pre_bias = torch.zeros(len(seeds), dimensions) if dictionary.pre_bias else None
        return cls(encoder, bias, decoder, pre_bias, dictionary.activation)

    def parameters(self) -> dict[str, Tensor]:
        """What training may change, by name."""
        named = {"encoder": self.encoder, "encoder_bias": self.encoder_bias, "decoder": self.decoder}
        return named if self.pre_bias is None else {**named, "pre_bias": self.pre_bias}

    def with_parameters(self, parameters: dict[str, Tensor]) -> "Stack":
        return replace(self, **parameters)

    def leaves(self) -> "Stack":
        """The same tensors, seen by autograd."""
        return self.with_parameters({name: p.detach().requires_grad_() for name, p in self.parameters().items()})

    def member(self, index: int) -> "Stack":
        """One member, as a stack of one."""
        return self.with_parameters({name: p[index : index + 1] for name, p in self.parameters().items()})

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
        return self.activation.codes(self.pre_activations(x))

    def decode(self, codes: Codes) -> Float[Tensor, "m b d"]:
        reconstruction = codes.decode(self.decoder)
        return reconstruction if self.pre_bias is None else reconstruction + self.pre_bias[:, None, :]

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
