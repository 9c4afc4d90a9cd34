"""Where products are made, and in which precision: a device's name, and a matrix product with float32 around it.

    device       "cpu"; "cuda", "cuda:1", …; "mps"; "auto": the first of cuda and mps that is here, else the CPU
    precision    "float32", or that of matrix products alone: "bfloat16", "float16"

Weights, Adam's moments, thresholds, codes, losses and sums are float32 whatever the precision. float16 has few
exponents, so each operand is first divided by a power of two near its largest number, and the product multiplied by it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import torch

from unbraid.axes import Float, Tensor
from unbraid.errors import UserError

Precision = Literal["float32", "bfloat16", "float16"]
DEVICE = r"auto|cpu|cuda(:\d+)?|mps"
"""What a configuration may name."""


MOST_SUMMANDS = 8192
"""So many products of numbers below two cannot overflow in float16."""


@dataclass(frozen=True)
class Hardware:
    """A device that is here, and the precision of the products made on it.

    Examples
    --------
    >>> from unbraid.devices import Hardware
    >>> Hardware.of("cpu", "bfloat16").facts()
    ['cpu', 'bfloat16']
    >>> Hardware.of("cpu", "float32").facts()  # what results were always made with
    []
    """

    device: str = "cpu"
    precision: Precision = "float32"

    @classmethod
    def of(cls, device: str, precision: Precision) -> "Hardware":
        """Refuses a device that is not here."""
        return cls(find_device(device), precision)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def facts(self) -> list[str]:
        """What the bits of a result depend on; nothing for float32 on the CPU, and which of several GPUs it was."""
        return [] if self == Hardware() else [self.device.partition(":")[0], self.precision]


def available_devices() -> list[str]:
    """The devices that are here, the CPU last.

    Examples
    --------
    >>> from unbraid.devices import available_devices
    >>> available_devices()[-1]
    'cpu'
    """
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return [*cuda, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def find_device(name: str) -> str:
    """A device by the name a configuration gives it; refuses one that is not here.

    Parameters
    ----------
    name : str
        "auto", "cpu", "cuda", "cuda:1" or "mps".

    Returns
    -------
    str
        With its number, where there may be several.

    Examples
    --------
    >>> from unbraid.devices import find_device
    >>> find_device("cpu")
    'cpu'
    >>> find_device("cuda:99")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    unbraid.errors.UserError: the device 'cuda:99' is not here; accepted: auto, ...
    """
    here = available_devices()
    found = here[0] if name == "auto" else "cuda:0" if name == "cuda" else name
    if found not in here:
        raise UserError(f"the device '{name:.40}' is not here; accepted: auto, {', '.join(here)}")
    if found.startswith("cuda"):
        _have_one_order()
    return found


def checked_precision(name: str) -> Precision:
    """A precision by its name; refuses another word."""
    known: tuple[Precision, ...] = get_args(Precision)
    if name not in known:
        raise UserError(f"the precision is '{name:.40}'; accepted: {', '.join(known)}")
    return known[known.index(name)]


def device_names() -> dict[str, str]:
    """What the accelerators that are here are called, for the record of a run."""
    return {
        name: torch.cuda.get_device_name(name) if name.startswith("cuda") else name
        for name in available_devices()
        if name != "cpu"
    }


@cache
def _have_one_order() -> None:
    """Sums on CUDA are to have one order, so that the same device gives the same bits; torch warns where it cannot."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when its first product is made
    torch.use_deterministic_algorithms(True, warn_only=True)


def place(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on this device; MPS has no float64, and there it becomes float32."""
    to = torch.device(device)
    narrow = to.type == "mps" and tensor.dtype == torch.float64
    return tensor.float().to(to) if narrow else tensor.to(to)


def widest(device: torch.device) -> torch.dtype:
    """The type for sums that are to be exact: float64, where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


@contextmanager
def products_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Within this context torch makes matrix products in this precision, and sums in float32 (autocast)."""
    mode: Any = nullcontext()
    if precision != "float32":
        mode = torch.autocast(device.type, dtype=getattr(torch, precision))
    with mode:
        yield


def product(
    first: Float[Tensor, "m i j"], second: Float[Tensor, "m j k"], precision: Precision
) -> Float[Tensor, "m i k"]:
    """Each member's matrix product in this precision, as float32; so are those of its gradients.

    Examples
    --------
    >>> import torch
    >>> from unbraid.devices import product
    >>> a, b = torch.full((1, 1, 2), 1e6), torch.eye(2)[None]
    >>> product(a, b, "float16").tolist()  # more than float16 can hold
    [[[1000000.0, 1000000.0]]]
    """
    if precision == "float32":
        return first @ second
    return _Product.apply(first, second, getattr(torch, precision))  # pyright: ignore[reportReturnType]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(first, second)
        ctx.dtype = dtype
        return _reduced_product(first, second, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (gradient,), (first, second) = gradients, ctx.saved_tensors
        wanted = ctx.needs_input_grad
        in_first = _reduced_product(gradient, second.mT, ctx.dtype) if wanted[0] else None
        return in_first, _reduced_product(first.mT, gradient, ctx.dtype) if wanted[1] else None, None


def _reduced_product(first: Tensor, second: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.bfloat16:
        return (first.to(dtype) @ second.to(dtype)).to(first.dtype)
    scales = [_power_of_two(operand) for operand in (first, second)]
    scales[0] = scales[0] * max(1.0, first.shape[-1] / MOST_SUMMANDS)
    small = [(operand / scale).to(dtype) for operand, scale in zip((first, second), scales, strict=True)]
    return (small[0] @ small[1]).to(first.dtype) * (scales[0] * scales[1])


def _power_of_two(operand: Float[Tensor, "m i j"]) -> Float[Tensor, "m one one"]:
    """The one below each member's largest number, and 1 where all are 0."""
    largest = operand.detach().abs().amax((1, 2), keepdim=True)
    exponent = torch.where(largest > 0, largest, 1).log2().floor()
    return exponent.clamp(-100, 100).exp2()
