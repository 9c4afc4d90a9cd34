"""m dictionaries as one set of tensors; one dictionary is a stack of one.

pre = (x - pre_bias) · encoderᵀ + encoder_bias      codes = activation(pre)
x̂   = codes · decoder + pre_bias                    every decoder row has length one
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch.nn.functional import normalize

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Config, tagged
from unbraid.dictionaries.activations import Activation, BatchTopK, Gated, JumpRelu, Named, Relu, TopK
from unbraid.dictionaries.variational import Variational
from unbraid.randomness import stream

ACTIVATIONS: dict[str, type[Activation]] = {
    "relu": Relu,
    "topk": TopK,
    "batchtopk": BatchTopK,
    "jumprelu": JumpRelu,
    "gated": Gated,
    "variational": Variational,
}

if TYPE_CHECKING:
    AnyActivation = Activation
else:
    AnyActivation = tagged(ACTIVATIONS)


INHIBITION = ("inhibitors", "inhibition_strength", "inhibition_threshold")
"""What a stack keeps of lateral inhibition in use: lists of features (m, f, r), -1 if empty, and two numbers (m,)."""


class Dictionary(Config):
    """The settings of a dictionary (sparse autoencoder): its size, its activation rule and how its weights begin.

    `fit` trains dictionaries with these settings.

    Examples
    --------
    >>> import unbraid as ub
    >>> dictionary = ub.Dictionary(d_sae=64, activation=ub.TopK(k=4))
    >>> dictionary.activation.k
    4
    """

    d_sae: int = Field(default=1024, ge=1, le=1 << 24)
    """Number of learned features; more can hold rarer directions, and may split or repeat common ones."""
    activation: AnyActivation = Relu()
    """The rule by which features fire."""
    pre_bias: bool = False
    """Whether a learned vector is subtracted from inputs and added to reconstructions (SAELens' b_dec)."""
    pre_bias_init: Literal["zeros", "geometric_median"] = "zeros"
    """Where the pre-bias begins: at 0, or at the geometric median of the first batch (Bricken et al. 2023)."""
    init: Literal["tied", "unit", "data", "published"] = "tied"
    """tied: random unit rows, encoder = decoder. unit: random unit decoder, encoder as in torch's `Linear`, no bias.
    data: samples of the first batch as unit rows, encoder = decoder. published: orthogonal decoder, encoder and bias as
    in torch's `Linear`."""

    renamed: ClassVar[dict[str, str]] = {"features": "d_sae", "start": "init"}

    @model_validator(mode="after")
    def check_k(self) -> Self:
        if isinstance(self.activation, TopK | BatchTopK) and self.activation.k > self.d_sae:
            raise ValueError(
                f"activation.k is {self.activation.k}, more than the dictionary's {self.d_sae} features; "
                f"accepted: 1 to {self.d_sae}"
            )
        return self

    @model_validator(mode="after")
    def check_pre_bias(self) -> Self:
        if self.pre_bias_init != "zeros" and not self.pre_bias:
            raise ValueError(f'pre_bias_init is "{self.pre_bias_init}" without a pre-bias; accepted: pre_bias = true')
        return self

    @property
    def from_data(self) -> bool:
        """Whether it begins at samples of its inputs."""
        return self.init == "data" or self.pre_bias_init != "zeros"


@dataclass(frozen=True)
class Stack:
    """m dictionaries (sparse autoencoders) of one size as one set of tensors; one dictionary is a stack of one.

    `fit` trains a stack, `load_stack` reads that of a run, `Stack.start` makes an untrained one. Training changes the
    tensors in place; nothing else does. In the shapes m is the number of members, f of features (`d_sae`), d of input
    dimensions (`d_in`) and b of samples.

    Parameters
    ----------
    encoder : Tensor, shape (m, f, d)
        Encoder rows: pre-activations are encoder · (x - pre_bias) + encoder_bias.
    encoder_bias : Tensor, shape (m, f)
        Added to pre-activations.
    decoder : Tensor, shape (m, f, d)
        Decoder rows, of length one.
    pre_bias : Tensor, shape (m, d), or None
        Subtracted from inputs, added to reconstructions.
    activation : Activation
        The rule by which features fire.
    rule : dict of str to Tensor, each of shape (m, f)
        The activation's own weights, as the thresholds of `JumpRelu`.
    memory : dict of str to Tensor, each of shape (m,)
        What the activation remembers between training steps, as the threshold of `BatchTopK`.
    inhibition : dict of str to Tensor
        What lateral inhibition in use needs (`LateralInhibition(in_use=True)`); empty where there is none.

    Attributes
    ----------
    W_enc : Tensor, shape (m, d, f)
        The encoder by SAELens' name and in its shape, with the member axis first; so are the next four.
    b_enc : Tensor, shape (m, f)
        The encoder's bias.
    W_dec : Tensor, shape (m, f, d)
        The decoder.
    b_dec : Tensor, shape (m, d)
        The pre-bias; zeros if there is none.
    threshold : Tensor, shape (m, f), or None
        What a pre-activation must exceed to fire, of `JumpRelu` and `BatchTopK`; None for other rules.
    d_in, d_sae, members : int
        d, f and m.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=8), dimensions=4, seeds=[0, 1])
    >>> stack.W_enc.shape, stack.W_dec.shape
    (torch.Size([2, 4, 8]), torch.Size([2, 8, 4]))
    >>> codes = stack.encode(torch.randn(5, 4))
    >>> codes.to_dense().shape  # member, sample, feature
    torch.Size([2, 5, 8])
    >>> stack.decode(codes).shape  # member, sample, dimension
    torch.Size([2, 5, 4])
    >>> stack.member(1).members
    1
    """

    encoder: Float[Tensor, "m f d"]
    encoder_bias: Float[Tensor, "m f"]
    decoder: Float[Tensor, "m f d"]
    pre_bias: Float[Tensor, "m d"] | None
    activation: Activation
    rule: Named = field(default_factory=dict)
    """The activation's own weights, each `m f`."""
    memory: Named = field(default_factory=dict)
    """What the activation remembers between steps, each `m`."""
    inhibition: Named = field(default_factory=dict)
    """Lateral inhibition in use: the tensors named in `INHIBITION`, or none."""

    @classmethod
    def start(
        cls,
        dictionary: Dictionary,
        dimensions: int,
        seeds: Sequence[int],
        x: Float[Tensor, "b d"] | None = None,
    ) -> "Stack":
        """Make an untrained stack.

        Parameters
        ----------
        dictionary : Dictionary
            Size, activation rule and start.
        dimensions : int
            d, the number of input dimensions.
        seeds : sequence of int
            One per member; each seed draws that member's weights.
        x : Tensor, shape (b, d), optional
            Inputs to begin at, where the dictionary is to (`init = "data"`, `pre_bias_init`); without them it begins as
            `tied` with a pre-bias of zeros.
        """
        draw = {"unit": _unit_decoder, "published": _published}.get(dictionary.init, _tied)
        drawn = [draw(stream(seed, "rows"), dictionary.d_sae, dimensions) for seed in seeds]
        encoder, bias, decoder = (torch.from_numpy(np.stack(arrays)) for arrays in zip(*drawn, strict=True))
        pre_bias = torch.zeros(len(seeds), dimensions) if dictionary.pre_bias else None
        if x is not None:
            x = x.to(encoder.dtype)
            if pre_bias is not None and dictionary.pre_bias_init == "geometric_median":
                pre_bias[:] = geometric_median(x)
            if dictionary.init == "data":
                center = 0 if pre_bias is None else pre_bias[0]
                for member, seed in enumerate(seeds):
                    decoder[member] = _samples(stream(seed, "samples"), x - center, decoder[member])
                encoder.copy_(decoder)
        rule = dictionary.activation.parameters(len(seeds), dictionary.d_sae)
        memory = dictionary.activation.memory(seeds)
        return cls(encoder, bias, decoder, pre_bias, dictionary.activation, rule, memory)

    @classmethod
    def of(cls, tensors: Named, activation: Activation) -> "Stack":
        """The stack that has these `tensors()`."""
        rule = {name: tensors[name] for name in activation.parameters(1, 1)}
        memory = {name: tensors[name] for name in activation.memory([0])}
        inhibition = {name: tensors[name] for name in INHIBITION if name in tensors}
        rest = {name: tensor for name, tensor in tensors.items() if name not in {**rule, **memory, **inhibition}}
        named = {"pre_bias": None, **rest}
        return cls(**named, activation=activation, rule=rule, memory=memory, inhibition=inhibition)

    def parameters(self) -> Named:
        """What gradients may change, by name."""
        named = {"encoder": self.encoder, "encoder_bias": self.encoder_bias, "decoder": self.decoder, **self.rule}
        return named if self.pre_bias is None else {**named, "pre_bias": self.pre_bias}

    def tensors(self) -> Named:
        """All there is to save, by name."""
        return {**self.parameters(), **self.memory, **self.inhibition}

    def with_parameters(self, parameters: Named) -> "Stack":
        rule = {name: parameters.get(name, tensor) for name, tensor in self.rule.items()}
        return replace(self, **{name: p for name, p in parameters.items() if name not in rule}, rule=rule)

    def requires_grad_copy(self) -> "Stack":
        """The same tensors, seen by autograd."""
        return self.with_parameters({name: p.detach().requires_grad_() for name, p in self.parameters().items()})

    def detached(self) -> "Stack":
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
    def d_sae(self) -> int:
        """The number of features."""
        return self.features

    @property
    def d_in(self) -> int:
        """The number of input dimensions."""
        return self.encoder.shape[2]

    @property
    def W_enc(self) -> Float[Tensor, "m d f"]:  # noqa: N802
        """The encoder: pre-activations are (x - b_dec) @ W_enc + b_enc."""
        return self.encoder.mT

    @property
    def b_enc(self) -> Float[Tensor, "m f"]:
        """The encoder's bias."""
        return self.encoder_bias

    @property
    def W_dec(self) -> Float[Tensor, "m f d"]:  # noqa: N802
        """The decoder: reconstructions are codes @ W_dec + b_dec."""
        return self.decoder

    @property
    def b_dec(self) -> Float[Tensor, "m d"]:
        """The pre-bias; zeros where there is none."""
        return self.decoder.new_zeros(self.members, self.d_in) if self.pre_bias is None else self.pre_bias

    @property
    def threshold(self) -> Float[Tensor, "m f"] | None:
        """What a pre-activation must exceed to fire, for `JumpRelu` and `BatchTopK`; None for other rules."""
        return self.activation.threshold_of(self.tensors())

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
        """Encoder outputs (m, b, f) before the activation rule."""
        return torch.baddbmm(self.shifted_bias()[:, None, :], x.expand(self.members, *x.shape), self.encoder.mT)

    def encode(self, x: Float[Tensor, "b d"]) -> Codes:
        """The codes of inputs (b, d) in every member: `Codes`, of shape (m, b, f) when dense."""
        return self.inhibited(self.activation.codes(self.pre_activations(x), self.tensors()))

    def inhibited(self, codes: Codes) -> Codes:
        """What fires in use, of what would: the same codes, unless the stack keeps inhibitors."""
        if not self.inhibition:
            return codes
        from unbraid.dictionaries.inhibition import inhibit  # compiled loops, which take a while to load

        return replace(codes, values=inhibit(codes, *(self.inhibition[name] for name in INHIBITION)))

    def probabilities(self, x: Float[Tensor, "b d"]) -> Float[Tensor, "m b f"]:
        """How likely each feature is to fire: the posterior of a variational dictionary; 0 or 1 in any other."""
        pre, weights = self.pre_activations(x), self.tensors()
        likely = self.activation.probabilities(pre, weights)
        if not self.inhibition:
            return likely
        would_fire = self.activation.codes(pre, weights)
        silenced = (would_fire.to_dense() != 0) & (self.inhibited(would_fire).to_dense() == 0)
        return likely.masked_fill(silenced, 0)

    def decode(self, codes: Codes) -> Float[Tensor, "m b d"]:
        """The reconstructions (m, b, d) of these codes."""
        reconstruction = codes.decode(self.decoder)
        return reconstruction if self.pre_bias is None else reconstruction + self.pre_bias[:, None, :]

    def remember(self, memory: Named) -> None:
        """Give the activation its new memory, in place."""
        for name, tensor in memory.items():
            self.memory[name].copy_(tensor)

    def normalize(self) -> None:
        """Bring every decoder row back to length one, in place."""
        self.decoder.div_(self.decoder.norm(dim=-1, keepdim=True).clamp_min(1e-12))


Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Encoder, its bias, and decoder of one member."""


def _tied(rng: np.random.Generator, features: int, dimensions: int) -> Drawn:
    rows = _unit(rng.standard_normal((features, dimensions), dtype=np.float32))
    return rows, np.zeros(features, np.float32), rows.copy()


def _unit_decoder(rng: np.random.Generator, features: int, dimensions: int) -> Drawn:
    bound = dimensions**-0.5
    encoder = rng.uniform(-bound, bound, (features, dimensions)).astype(np.float32)
    decoder = _unit(rng.standard_normal((features, dimensions), dtype=np.float32))
    return encoder, np.zeros(features, np.float32), decoder


def _samples(rng: np.random.Generator, x: Float[Tensor, "b d"], rows: Float[Tensor, "f d"]) -> Float[Tensor, "f d"]:
    """Other samples for each row, at length one; the rows that are given, where there are too few."""
    some = x[x.norm(dim=-1) > 0]
    chosen = some[torch.from_numpy(rng.permutation(len(some))[: len(rows)])]
    return torch.cat([normalize(chosen, dim=-1), rows[len(chosen) :]])


def geometric_median(x: Float[Tensor, "b d"], steps: int = 100) -> Float[Tensor, "d"]:
    """The point with the least sum of distances to the samples, by Weiszfeld's iteration from their mean.

    Parameters
    ----------
    x : Tensor, shape (b, d)
        The samples.
    steps : int
        Iterations, at most; it stops where the point moves by less than a millionth of the mean distance.

    Returns
    -------
    Tensor, shape (d,)

    Examples
    --------
    >>> import torch
    >>> from unbraid.dictionaries.stack import geometric_median
    >>> x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-100.0, 0.0]])
    >>> bool((geometric_median(x).abs() < 1e-3).all())  # the mean is far from it
    True
    """
    point = x.double().mean(0)
    for _ in range(steps):
        distances = (x - point).norm(dim=-1).clamp_min(1e-12)
        moved = (x / distances[:, None]).sum(0) / (1 / distances).sum()
        still = (moved - point).norm() <= 1e-6 * distances.mean()
        point = moved
        if still:
            break
    return point.to(x.dtype)


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
