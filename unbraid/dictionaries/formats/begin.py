"""Begin training at a dictionary that is there: fine-tuning, `dictionary.init = { from = "path" }`.

A dictionary in a file is in the units of a model's activations; one in training is in those of its normalized inputs,
y = (x - mean)/scale. What was (x ↦ x̂) becomes (y ↦ ŷ), exactly. Where rows are to have length one (decoder_norm
"unit"), their lengths go into the encoder, for rules whose codes may be scaled feature by feature.
"""

from dataclasses import replace

import torch

from unbraid.activations.normalization import Normalization
from unbraid.activations.shards import weights_fingerprint
from unbraid.dictionaries.folding import fold, with_unit_rows
from unbraid.dictionaries.formats.load import load
from unbraid.dictionaries.stack import Dictionary, InitFrom, Stack, Target
from unbraid.errors import UserError

ROUNDING = 1e-5
"""What is left of a pre-bias of 0 when a normalization was folded in and taken out again, relative to its mean."""


def begin_at(dictionary: Dictionary, dimensions: int, members: int, target: Target | None) -> Stack:
    """So many members that all begin at the dictionary that `dictionary.init` names."""
    assert isinstance(dictionary.init, InitFrom)
    source, member = f"dictionary.init.from {dictionary.init.path}", dictionary.init.member
    stack = load(dictionary.init.path)
    if member >= stack.members:
        raise UserError(f"{source} holds {stack.members} dictionaries; accepted: member 0 to {stack.members - 1}")
    stack = stack.member(member)
    _check_same(stack, dictionary, dimensions, target, source)
    if target is not None and target.normalization is not None:
        there = target.target_normalization
        stack = fold(stack, _inverse(target.normalization), None if there is None else _inverse(there))
    if dictionary.decoder_norm == "unit":
        stack = with_unit_rows(stack)
    if dictionary.pre_bias and stack.pre_bias is None:
        stack = replace(stack, pre_bias=torch.zeros(1, dimensions))
    if not dictionary.pre_bias:
        stack = _without_pre_bias(stack, target, source)
    tensors = {name: tensor.repeat(members, *[1] * (tensor.ndim - 1)) for name, tensor in stack.tensors().items()}
    return replace(Stack.of(tensors, dictionary.activation), decoder_norm=dictionary.decoder_norm)


def _without_pre_bias(stack: Stack, target: Target | None, source: str) -> Stack:
    """The same dictionary without one: of an autoencoder, where it is 0 but for rounding."""
    if stack.pre_bias is None:
        return stack
    if stack.is_transcoder:
        return replace(stack, encoder_bias=stack.shifted_bias(), pre_bias=None)
    n = None if target is None else target.normalization
    rounding = ROUNDING * (1.0 if n is None else 1 + float(n.mean.abs().max()) / n.scale)
    if stack.pre_bias.abs().max() > rounding:
        raise UserError(f"{source} has a pre-bias in the units of training; accepted: dictionary.pre_bias = true")
    return replace(stack, pre_bias=None)


def fingerprint(dictionary: Dictionary) -> str | None:
    """A checksum of the weights a dictionary begins at; None where it begins anew."""
    if not isinstance(dictionary.init, InitFrom):
        return None
    return weights_fingerprint(load(dictionary.init.path).member(dictionary.init.member).tensors())


def _check_same(stack: Stack, dictionary: Dictionary, dimensions: int, target: Target | None, source: str) -> None:
    """Refuse a dictionary of another size, rule or kind."""
    wide = dimensions if target is None or target.dimensions is None else target.dimensions
    found = {
        "d_sae": (stack.d_sae, dictionary.d_sae),
        "input dimensions": (stack.d_in, dimensions),
        "target dimensions": (stack.d_out, wide),
        "activation.kind": (_kind(stack.activation), _kind(dictionary.activation)),
        "transcoder": (stack.is_transcoder, target is not None and target.dimensions is not None),
        "skip": (stack.skip is not None, dictionary.skip),
    }
    for name, (there, asked) in found.items():
        if there != asked:
            raise UserError(f"{source}: {name} is {there} there and {asked} here; accepted: the same")


def _kind(activation: object) -> str:
    return type(activation).__name__.lower()


def _inverse(normalization: Normalization) -> Normalization:
    """What undoes a normalization, as one."""
    return Normalization(-normalization.mean / normalization.scale, 1 / normalization.scale)
