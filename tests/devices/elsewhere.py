"""A device that is not there: its tensors have values, and refuse what a GPU's refuse.

Torch's `FakeTensorMode` has no values, so whatever looks at one (which features fire, how many) cannot run in it; nor
does autograd run on its fake cuda, in a torch that was built without CUDA. `Elsewhere` keeps the values in this
process' memory, under the name of a device type that torch knows and nobody has ("lazy"): every operation is done on
the CPU, and the result is the CPU's to the last bit. Like a GPU it refuses to be mixed with tensors of the CPU (but
numbers without an axis), to become a numpy array, and random draws of its own.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

ELSEWHERE = torch.device("lazy:0")
aten = torch.ops.aten
MOVES = (aten._to_copy.default, aten.copy_.default)
"""What may see both devices."""
DRAWS = ("rand", "normal", "bernoulli", "multinomial", "dropout", "exponential")


class Mixed(RuntimeError):
    """Tensors of two devices met."""


class There(torch.Tensor):
    """A tensor elsewhere."""

    @staticmethod
    def __new__(cls, here):
        there = torch.Tensor._make_wrapper_subclass(
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=ELSEWHERE,
        )
        there.here = here
        return there

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return carry_out(func, args, kwargs or {})

    def tolist(self):
        return self.here.tolist()

    def __repr__(self):
        return f"There({self.here})"


def carry_out(func, args, kwargs):
    """Do it with the values, and say where the result is."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = any(isinstance(tensor, There) for tensor in tensors)
    asked = kwargs.get("device")
    elsewhere = there if asked is None else torch.device(asked).type == ELSEWHERE.type
    name = func._schema.name.removeprefix("aten::")
    if there and func not in MOVES:
        for tensor in tensors:
            if not isinstance(tensor, There) and tensor.dim():
                raise Mixed(f"{name} was given tensors of {ELSEWHERE} and of the CPU")
    if elsewhere and name.startswith(DRAWS):
        raise Mixed(f"{name} draws on {ELSEWHERE}")
    kwargs = {key: "cpu" if key == "device" and value is not None else value for key, value in kwargs.items()}
    result = func(*tree_map(values_of, args), **tree_map(values_of, kwargs))
    if func._schema.is_mutable and not isinstance(result, (list, tuple)) and name.endswith("_"):
        return args[0]
    known = {id(tensor.here): tensor for tensor in tensors if isinstance(tensor, There)}

    def back(leaf):
        if not (elsewhere and isinstance(leaf, torch.Tensor)):
            return leaf
        return known.get(id(leaf)) if id(leaf) in known else There(leaf)

    return tree_map(back, result)


def values_of(leaf):
    return leaf.here if isinstance(leaf, There) else leaf


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return carry_out(func, args, kwargs or {})


@contextmanager
def elsewhere(monkeypatch):
    """Within this context there is a device called "lazy:0"."""
    monkeypatch.setattr("unbraid.devices.available_devices", lambda: [str(ELSEWHERE), "cpu"])
    with _Mode():
        yield str(ELSEWHERE)
