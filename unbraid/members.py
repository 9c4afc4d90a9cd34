"""Several members' settings as one record: what may differ between them becomes a tensor over members."""

from collections.abc import Sequence

import torch

from unbraid.config import R, per_member_fields


def stack_configs(records: Sequence[R], device: torch.device | str = "cpu") -> R:
    """One record whose per_member_fields are tensors `m`; everything else must be equal among the members."""
    first = records[0]
    differing = per_member_fields(type(first))
    values = {name: getattr(first, name) for name in type(first).model_fields}
    for name, value in values.items():
        if name in differing:
            values[name] = torch.tensor([getattr(record, name) for record in records]).to(device)
        elif any(getattr(record, name) != value for record in records):
            raise ValueError(f"members of one stack must agree on '{name}' of {type(first).__name__}")
    return type(first).model_construct(**values)


def select_member(record: R, index: int) -> R:
    """The settings of one member out of what `stack_configs` made, still as tensors, of length one."""
    values = {name: getattr(record, name) for name in type(record).model_fields}
    for name in per_member_fields(type(record)):
        if isinstance(values[name], torch.Tensor):
            values[name] = values[name][index : index + 1]
    return type(record).model_construct(**values)
