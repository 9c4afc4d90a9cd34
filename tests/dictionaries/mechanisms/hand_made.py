"""Passes made by hand, to hold mechanisms against sums on paper."""

import torch

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.mechanisms import Forward


def a_pass(values, x=None, dimensions=4):
    """A pass of these codes, `b f` or `m b f`; it reconstructs nothing."""
    values = torch.as_tensor(values, dtype=torch.float64)
    values = values if values.ndim == 3 else values[None]
    x = torch.zeros(values.shape[1], dimensions, dtype=torch.float64) if x is None else x
    return Forward(x, Codes.dense(values), torch.zeros(len(values), *x.shape, dtype=torch.float64))


def a_stack(features, dimensions=4, members=1):
    stack = Stack.start(Dictionary(d_sae=features), dimensions, range(members))
    return stack.with_parameters({name: p.double() for name, p in stack.parameters().items()})
