"""Fold a normalization into the weights of a stack, so that it takes and gives activations as the model has them.

With y = (x - mean) / scale, and codes that grow with scale as rows of the decoder must keep length one,

    encoder, decoder   as they are          encoder_bias ← scale · encoder_bias
    pre_bias ← mean + scale · pre_bias      codes(x) = scale · codes(y)         x̂ = scale · ŷ + mean

A rule that compares pre-activations with numbers of its own has those scaled as well. A plugin's rule is tried, and
refused where its codes do not grow so.

A transcoder has two, of its inputs (mean, scale) and of its targets (mean', scale'); codes grow with scale':

    encoder ← scale'/scale · encoder      encoder_bias ← scale' · encoder_bias      pre_bias ← mean + scale · pre_bias
    skip ← scale'/scale · skip            decoder_bias ← mean' + scale' · decoder_bias - mean · skip

The lengths of decoder rows, n, can be folded in where codes may be scaled feature by feature: by relu, jump-relu and
gated, and not where codes are ranked among features, or held against one threshold.

    decoder ← decoder / n    encoder ← n · encoder    biases, thresholds ← n · biases, thresholds    codes ← n · codes
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from unbraid.activations.normalization import Normalization
from unbraid.dictionaries.activations import Activation, Gated, JumpRelu, Named, Relu
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.variational import Variational
from unbraid.errors import UserError

UNIT = 1e-5
"""How far from 1 the length of a decoder row may be that counts as one of length one."""

SCALED: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "log_threshold": lambda tensor, scale: tensor + math.log(scale),
    "magnitude_bias": lambda tensor, scale: tensor * scale,
    "threshold": lambda tensor, scale: torch.where(tensor > 0, tensor * scale, tensor),
    "log_variance": lambda tensor, scale: tensor + 2 * math.log(scale),
}
"""What becomes of the rules' own weights and memories; others do not depend on the scale."""


def fold(stack: Stack, normalization: Normalization, target: Normalization | None = None) -> Stack:
    """The stack that does for x what this one does for normalized x; of a transcoder, whose targets have their own."""
    scale = (target or normalization).scale
    pre_bias = torch.zeros_like(stack.encoder[:, 0]) if stack.pre_bias is None else stack.pre_bias
    tensors: Named = {
        **_scaled(stack.tensors(), scale),
        "encoder_bias": stack.encoder_bias * scale,
        "pre_bias": normalization.mean.to(stack.device) + normalization.scale * pre_bias,
    }
    if target is not None:
        tensors |= _toward(stack, normalization, target)
    folded = Stack.of(tensors, _activation(stack.activation, scale))
    folded = replace(folded, decoder_norm=stack.decoder_norm, precision=stack.precision)
    if not type(stack.activation).__module__.startswith("unbraid.") and not scales(stack, folded, scale):
        raise UserError(
            f"codes of the rule '{stack.activation.to_dict().get('kind')}' do not grow with pre-activations, so the "
            f"activations' scale {scale:.3g} cannot be folded into weights; accepted: normalize = 'center'"
        )
    return folded


@torch.no_grad()
def scales(stack: Stack, folded: Stack, scale: float) -> bool:
    """Whether the folded rule makes codes so many times as large of pre-activations so many times as large."""
    rng = np.random.default_rng(0)
    pre = torch.from_numpy(rng.standard_normal((stack.members, 16, stack.features))).to(stack.encoder)
    plain = stack.activation.codes(pre, stack.tensors()).to_dense()
    larger = folded.activation.codes(scale * pre, folded.tensors()).to_dense()
    return bool(torch.allclose(larger, scale * plain, rtol=1e-4, atol=1e-5 * scale))


@torch.no_grad()
def with_unit_rows(stack: Stack) -> Stack:
    """The same function with decoder rows of length one; rows of zeros stay so."""
    lengths = stack.decoder.norm(dim=-1)
    if ((lengths - 1).abs() <= UNIT).all():
        return replace(stack, decoder_norm="unit")
    if not isinstance(stack.activation, Relu | JumpRelu | Gated):
        raise UserError(
            f"decoder rows of this dictionary have lengths {lengths.min():.3g} to {lengths.max():.3g}, and bringing "
            f"them to one would change which features fire by the rule {stack.activation.to_dict().get('kind')}; "
            'accepted: dictionary.decoder_norm = "free"'
        )
    n = torch.where(lengths > 0, lengths, 1)
    tensors: Named = {
        **stack.tensors(),
        "encoder": stack.encoder * n[..., None],
        "encoder_bias": stack.encoder_bias * n,
        "decoder": stack.decoder / n[..., None],
    }
    if "log_threshold" in tensors:
        tensors["log_threshold"] = tensors["log_threshold"] + n.log()
    if "magnitude_bias" in tensors:
        tensors["magnitude_bias"] = tensors["magnitude_bias"] * n
    return replace(Stack.of(tensors, stack.activation), metadata=stack.metadata)


def _toward(stack: Stack, normalization: Normalization, target: Normalization) -> Named:
    """What else changes in a transcoder."""
    ratio = target.scale / normalization.scale
    mean, target_mean = (each.mean.to(stack.device) for each in (normalization, target))
    skip = stack.decoder.new_zeros(stack.members, stack.d_in, stack.d_out) if stack.skip is None else ratio * stack.skip
    bias = target_mean + target.scale * stack.b_dec - mean @ skip
    return {"encoder": ratio * stack.encoder, "decoder_bias": bias} | ({} if stack.skip is None else {"skip": skip})


def _scaled(tensors: Named, scale: float) -> Named:
    return {name: SCALED[name](tensor, scale) if name in SCALED else tensor.clone() for name, tensor in tensors.items()}


def _activation(activation: Activation, scale: float) -> Activation:
    if isinstance(activation, Variational):
        changed = {"sharpness": activation.sharpness / scale, "scale": activation.scale * scale}
        return activation.model_copy(update=changed)
    return activation
