"""The one narrow door of operations: all that the fast ways ask of a device, chosen by the device of what is given.

    select            inputs, weights          → lists of what fires
    decode            lists                    → reconstruction, errors, gradients in the codes
    sort_by_feature   lists, gradients         → events in the order of features
    weight_gradients  events                   → gradients of the encoder's and the decoder's rows
    adam_rows         gradients                → Adam's step and unit rows, in place
    update_rows       the last two in one pass, where all that is asked of the gradients is that step

and a handful of loops for activation rules. `contract.py` states each; `cpu.py` is numba's, `cuda.py` has Triton's
kernels, and `plain.py` is torch alone, for any other device. The readable step (`training/step.py`) uses none of them.
"""

from functools import cache
from importlib.util import find_spec

import torch

from unbraid.dictionaries.operations.contract import Operations
from unbraid.dictionaries.operations.cpu import Cpu
from unbraid.dictionaries.operations.plain import Plain

CPU, PLAIN = Cpu(), Plain()


def of(tensor: torch.Tensor) -> Operations:
    """The operations of the device that this tensor is on."""
    kind = tensor.device.type
    return CPU if kind == "cpu" else _of_cuda() if kind == "cuda" else PLAIN


@cache
def _of_cuda() -> Operations:
    """Triton comes with torch where it was built for CUDA on Linux, and not everywhere."""
    if find_spec("triton") is None:
        return PLAIN
    from unbraid.dictionaries.operations.cuda import Cuda  # importing Triton takes a second

    return Cuda()
