"""Several members' settings as one record: what may differ between them becomes a tensor over members."""

from collections.abc import Sequence

import torch

from unbraid.config import R, knobs


def across(records: Sequence[R]) -> R:
    """One record whose knobs are tensors `m`; everything else must be equal among the members."""
    first = records[0]
    differing = knobs(type(first))
    values = {name: getattr(first, name) for name in type(first).model_fields}
    for name, value in values.items():
        if name in differing:
            values[name] = torch.tensor([getattr(record, name) for record in records])
        elif any(getattr(record, name) != value for record in records):
            raise ValueError(f"members of one stack must agree on '{name}' of {type(first).__name__}")
    return type(first).model_construct(**values)


def one_of(record: R, index: int) -> R:
    """The settings of one member out of what `across` made, still as tensors, of length one."""
    values = {name: getattr(record, name) for name in type(record).model_fields}
    for name in knobs(type(record)):
        if isinstance(values[name], torch.Tensor):
            values[name] = values[name][index : index + 1]
    return type(record).model_construct(**values)
