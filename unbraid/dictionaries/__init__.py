"""Dictionaries: directions to unbraid activations into, and the rules by which they fire."""

from unbraid.dictionaries.activation import Activation, Fired
from unbraid.dictionaries.activations import ACTIVATIONS, AnyActivation, Relu, TopK
from unbraid.dictionaries.batch_topk import BatchTopK
from unbraid.dictionaries.gated import Gated
from unbraid.dictionaries.jump_relu import JumpRelu
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.dictionaries.variational import Variational

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "AnyActivation",
    "BatchTopK",
    "Dictionary",
    "Fired",
    "Gated",
    "JumpRelu",
    "Relu",
    "Stack",
    "TopK",
    "Variational",
]
