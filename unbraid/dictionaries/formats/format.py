"""What a format is, how its numbers are checked, and the two conventions of where a bias stands.

A format recognises its files (`reads`), makes a stack of them (`read`), writes one (`write`), and has its own formula
(`run`), plain and short, on the tensors as they are in the file. Whenever a dictionary is converted, the formula and
the stack are run on the same random inputs, in float64:

    difference = max |theirs - ours| / max |theirs|        of codes, and of reconstructions

and a conversion that differs by more than `TOLERANCE` is refused. A sample in which something is so near the edge of
firing that rounding decides (`Ran.margin`) is not compared.

ours         pre = (x - p)·Eᵀ + e        x̂ = codes·D + p
elsewhere    pre = x·Eᵀ + e'             x̂ = codes·D + p        the same function where e' = e - E·p
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import torch

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.dictionaries.activations import Activation, JumpRelu, Named
from unbraid.dictionaries.folding import UNIT
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.variational import Variational
from unbraid.errors import UserError
from unbraid.randomness import stream

TOLERANCE = 1e-5
"""Largest difference of a conversion."""
EDGE = 1e-6
"""A sample is not compared where something is so near to firing or not, relative to the largest pre-activation."""
SAMPLES = 64
NEVER = 1.2e-38
"""A threshold that every positive float32 exceeds; 0 has no logarithm."""
MOST_DOUBLES = 1 << 26
"""Numbers of an encoder that are still compared in float64."""


@dataclass(frozen=True)
class Ran:
    """What a format's own formula makes of inputs."""

    codes: Float[Tensor, "b f"]
    reconstruction: Float[Tensor, "b o"]
    margin: Float[Tensor, "b"] | None = None
    """How far each sample is from a jump of its codes, in units of pre-activations; None: codes never jump."""


@dataclass(frozen=True)
class Check:
    """How far a format's own formula and the stack are apart."""

    codes: float
    reconstructions: float
    fired: int
    """Codes that were not 0, in all samples."""
    samples: int
    """Samples that were compared."""

    def sentence(self) -> str:
        return (
            f"checked on {self.samples} random inputs, {self.fired} codes: codes differ by {self.codes:.1e} of the "
            f"largest, reconstructions by {self.reconstructions:.1e} (accepted: {TOLERANCE:.0e})"
        )

    def to_dict(self) -> JsonDict:
        return {"codes": self.codes, "reconstructions": self.reconstructions, "tolerance": TOLERANCE}


class Format(ABC):
    """One layout of files that a dictionary is kept in. See the module."""

    title: ClassVar[str]
    """The library's name."""
    holds: ClassVar[str]
    """What one looks for, in words."""
    files: ClassVar[tuple[str, ...]] = ()
    """The files of a dictionary in its folder, as far as there are; of a hub's repository no others are fetched."""

    @abstractmethod
    def reads(self, path: Path) -> bool:
        """Whether a folder or file is of this format."""

    @abstractmethod
    def read(self, path: Path) -> tuple[Stack, JsonDict]:
        """The dictionary, and what the files say of it; `notes` are what was folded into the weights, in words."""

    def run(self, path: Path, x: Float[Tensor, "b d"]) -> Ran | None:
        """The format's own formula; None where files are checked by their checksums."""
        return None

    def write(self, stack: Stack, path: Path, metadata: JsonDict) -> list[str]:
        """Write one dictionary into a folder that is there; what was folded or is lost, in words."""
        raise UserError(f"dictionaries are only read from {self.title}'s files; accepted: another format")


@dataclass(frozen=True)
class Rule:
    """An activation rule with its weights of one dictionary."""

    activation: Activation
    rule: Named = field(default_factory=dict)
    """Each `f`."""
    memory: Named = field(default_factory=dict)
    """Each a scalar."""


def jump(threshold: Float[Tensor, "f"]) -> Rule:
    """Jump-relu on a relu: thresholds below 0 do what 0 does."""
    return Rule(JumpRelu(), {"log_threshold": threshold.clamp_min(NEVER).log()})


@torch.no_grad()
def make_stack(
    encoder: Float[Tensor, "f d"],
    bias: Float[Tensor, "f"],
    decoder: Float[Tensor, "f o"],
    decoder_bias: Float[Tensor, "o"],
    rule: Rule,
    subtracts: bool = True,
    transcodes: bool = False,
    skip: Float[Tensor, "d o"] | None = None,
) -> Stack:
    """A stack of one, from weights whose encoder `subtracts` the decoder's bias from its inputs, or does not."""
    weights = dict(rule.rule)
    if transcodes:
        pre_bias = decoder_bias if subtracts else None
    else:
        pre_bias = decoder_bias
        if not subtracts:
            bias = _plus(bias, encoder, decoder_bias)
            if "magnitude_bias" in weights:
                grown = encoder * weights["gain"].exp()[:, None]
                weights["magnitude_bias"] = _plus(weights["magnitude_bias"], grown, decoder_bias)
    lengths = decoder.norm(dim=-1)
    named = {"encoder": encoder, "encoder_bias": bias, "decoder": decoder, **weights, **rule.memory}
    named |= {"pre_bias": pre_bias} if pre_bias is not None else {}
    named |= {"decoder_bias": decoder_bias} if transcodes else {}
    named |= {"skip": skip} if skip is not None else {}
    stack = Stack.of({name: tensor[None].clone() for name, tensor in named.items()}, rule.activation)
    return replace(stack, decoder_norm="unit" if (lengths - 1).abs().max() <= UNIT else "free")


@torch.no_grad()
def without_pre_bias(stack: Stack) -> tuple[Named, list[str]]:
    """Tensors of a stack of one that do the same where nothing is subtracted from x, and what that changed, in words.

    `b_dec` is what is added to the codes' directions.
    """
    tensors = {name: tensor[0] for name, tensor in stack.tensors().items()}
    tensors["b_dec"] = stack.b_dec[0]
    pre_bias = tensors.get("pre_bias")
    if pre_bias is None or not pre_bias.any():
        return tensors, []
    tensors["encoder_bias"] = _plus(tensors["encoder_bias"], tensors["encoder"], -pre_bias)
    if "magnitude_bias" in tensors:
        grown = tensors["encoder"] * tensors["gain"].exp()[:, None]
        tensors["magnitude_bias"] = _plus(tensors["magnitude_bias"], grown, -pre_bias)
    return tensors, ["the pre-bias is folded into the encoder's bias"]


def _plus(bias: Float[Tensor, "f"], encoder: Float[Tensor, "f d"], shift: Float[Tensor, "d"]) -> Float[Tensor, "f"]:
    return (bias.double() + encoder.double() @ shift.double()).float()


def check_writable(stack: Stack, title: str) -> None:
    """Refuse what is no peer's: several members at once, and rules that other libraries have not got."""
    if stack.members != 1:
        raise UserError(f"{title}'s files hold one dictionary, and these are {stack.members}; accepted: one member")
    if isinstance(stack.activation, Variational):
        raise UserError(
            f"a variational dictionary multiplies strengths by how likely they are, which {title} has no rule for; "
            "accepted: the format unbraid"
        )
    if stack.inhibition:
        raise UserError(
            f"features of this dictionary inhibit each other in use, which {title} has no rule for; accepted: the "
            "format unbraid, or lateral_inhibition.in_use = false"
        )


def refuse_rule(stack: Stack, title: str, accepted: str) -> UserError:
    kind = stack.activation.to_dict().get("kind", type(stack.activation).__name__)
    what = "a transcoder" if stack.is_transcoder else "an autoencoder"
    return UserError(f"{title}'s files cannot hold {what} with the rule {kind}; accepted: {accepted}")


@torch.no_grad()
def verify(stack: Stack, ran: Ran, x: Float[Tensor, "b d"], source: str) -> Check:
    """Hold what a format's formula made of inputs against a stack of one; refuse where they differ."""
    codes = stack.encode(x)
    ours, reconstruction = codes.to_dense()[0], stack.decode(codes, x)[0]
    products = torch.stack([stack.pre_activations(x)[0], x @ stack.encoder[0].T])
    far = torch.ones(len(x), dtype=torch.bool) if ran.margin is None else ran.margin > EDGE * products.abs().max()
    check = Check(
        _difference(ran.codes[far], ours[far]),
        _difference(ran.reconstruction[far], reconstruction[far]),
        int((ran.codes[far] != 0).sum()),
        int(far.sum()),
    )
    agrees = check.codes <= TOLERANCE and check.reconstructions <= TOLERANCE
    if not agrees or check.samples < len(x) // 4:
        raise UserError(f"{source} cannot be converted exactly: {check.sentence()}; accepted: a dictionary that can")
    return check


def _difference(theirs: Tensor, ours: Tensor) -> float:
    """Of all that is compared, relative to the largest of theirs."""
    largest = float(theirs.abs().max()) if theirs.numel() else 0.0
    apart = float((theirs - ours).abs().max()) if theirs.numel() else 0.0
    return apart / largest if largest else (math.inf if apart else 0.0)


@torch.no_grad()
def probe(stack: Stack) -> tuple[Stack, Float[Tensor, "b d"]]:
    """The stack in float64, if it is not too large for that, and random inputs on which a part of it fires.

    They lie around the pre-bias, far enough from it that biases and thresholds are reached.
    """
    dtype = torch.float64 if stack.encoder.numel() <= MOST_DOUBLES else torch.float32
    double = _in(stack, dtype)
    center = torch.zeros(stack.d_in, dtype=dtype) if double.pre_bias is None else double.pre_bias[0]
    normal = torch.from_numpy(stream(0, "probe inputs").standard_normal((SAMPLES, stack.d_in))).to(dtype)
    reach = double.encoder_bias.abs().median() + (0 if double.threshold is None else double.threshold.median())
    norm = double.encoder[0].norm(dim=-1).median().clamp_min(1e-6)
    scale = max(float(2 * reach / norm), float(center.norm()) / math.sqrt(stack.d_in), 1e-3)
    x = center + scale * normal
    for _ in range(12):
        if int((double.encode(x).values != 0).sum()) >= SAMPLES:
            break
        scale *= 4
        x = center + scale * normal
    return double, x


def _in(stack: Stack, dtype: torch.dtype) -> Stack:
    tensors = {name: t.to(dtype) if t.is_floating_point() else t for name, t in stack.tensors().items()}
    return replace(Stack.of(tensors, stack.activation), decoder_norm=stack.decoder_norm)


def edge(pre: Float[Tensor, "b f"], threshold: Float[Tensor, "f"]) -> Float[Tensor, "b"]:
    """How far each sample is from a threshold: the `margin` of jump-relu. At a threshold near 0 nothing jumps."""
    far = torch.where(threshold > EDGE * pre.abs().max(), (pre - threshold).abs(), torch.inf)
    return far.amin(-1)


def edge_of_k(pre: Float[Tensor, "b f"], k: int) -> Float[Tensor, "b"] | None:
    """How far the k-th largest is from the next: the `margin` of top-k."""
    if k >= pre.shape[-1]:
        return None
    largest = pre.relu().topk(k + 1, dim=-1).values
    gap = largest[:, -2] - largest[:, -1]
    return torch.where(largest[:, -2] > 0, gap, torch.inf)


def keep_largest(pre: Float[Tensor, "b f"], k: int) -> Float[Tensor, "b f"]:
    """The k largest of each sample, where they are positive; 0 elsewhere."""
    values, features = pre.topk(k, dim=-1)
    return torch.zeros_like(pre).scatter(-1, features, values.relu())


def flag(settings: Mapping[str, object], name: str, path: Path, default: bool) -> bool:
    """A yes or no among a file's settings."""
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise UserError(f"{path}: {name} is {value!r:.40}; accepted: true or false")
    return value


def whole(settings: Mapping[str, object], name: str, path: Path, most: int) -> int:
    """A whole number among a file's settings, from 1 to the most."""
    value = settings.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise UserError(f"{path}: {name} is {value!r:.40}; accepted: a whole number from 1 to {most}")
    return value
