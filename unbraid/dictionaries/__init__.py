"""Dictionaries (sparse autoencoders): directions to unbraid activations into, and the rules by which they fire."""

from unbraid.dictionaries.activations import Activation, BatchTopK, Fired, Gated, JumpRelu, Relu, TopK
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.stack import ACTIVATIONS, AnyActivation, Dictionary, Feature, Stack
from unbraid.dictionaries.variational import Variational

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "AnyActivation",
    "AuxK",
    "BatchTopK",
    "Dictionary",
    "Feature",
    "Fired",
    "Gated",
    "JumpRelu",
    "Relu",
    "Stack",
    "TopK",
    "Variational",
]
