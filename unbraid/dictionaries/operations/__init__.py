"""The one narrow door of operations: all that the fast ways ask of a device, chosen by the device of what is given.

    select            inputs, weights          → lists of what fires
    decode            lists                    → reconstruction, errors, gradients in the codes
    sort_by_feature   lists, gradients         → events in the order of features
    weight_gradients  events                   → gradients of the encoder's and the decoder's rows
    adam_rows         gradients                → Adam's step and unit rows, in place
    update_rows       the last two in one pass, where all that is asked of the gradients is that step

and a handful of loops for activation rules. `contract.py` states each; `cpu.py` is numba's. The readable step
(`training/step.py`) uses none of them. Another device is one more class in `DEVICES`.
"""

import torch

from unbraid.dictionaries.operations.contract import Operations
from unbraid.dictionaries.operations.cpu import Cpu
from unbraid.errors import UserError

DEVICES: dict[str, Operations] = {"cpu": Cpu()}


def of(tensor: torch.Tensor) -> Operations:
    """The operations of the device that this tensor is on."""
    kind = tensor.device.type
    if kind not in DEVICES:
        raise UserError(f"there are no operations for the device '{kind}'; accepted: {', '.join(DEVICES)}")
    return DEVICES[kind]
