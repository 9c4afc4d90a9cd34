"""Dictionaries: directions to unbraid activations into, and the rules by which they fire."""

from unbraid.dictionaries.activations import ACTIVATIONS, Activation, AnyActivation, Relu, TopK
from unbraid.dictionaries.stack import Dictionary, Stack

__all__ = ["ACTIVATIONS", "Activation", "AnyActivation", "Dictionary", "Relu", "Stack", "TopK"]
