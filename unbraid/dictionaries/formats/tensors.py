"""Tensors in files of other libraries: read whole, finite and in float32, or refused in one sentence; and written.

safetensors   first, wherever a library has them
npz           arrays alone: objects would be pickles
pt            PyTorch's files are pickles; `weights_only` makes tensors and plain values of them, and runs nothing
"""

import io
import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as safetensors_bytes

from unbraid.axes import Tensor
from unbraid.errors import UserError
from unbraid.storage.files import write_bytes

Tensors = dict[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]


def read_safetensors(path: Path) -> Tensors:
    _check_size(path, _bytes(path))
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError):
        raise UserError(f"{path} is not a whole safetensors file; accepted: the file as it was written") from None
    return _checked(path, tensors)


def read_npz(path: Path) -> Tensors:
    _check_size(path, _unpacked(path))
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except MemoryError:
        raise
    except Exception:  # of damaged bytes zipfile, zlib and NumPy raise each their own
        raise UserError(f"{path} is not a whole .npz file of plain arrays; accepted: numbers alone") from None
    return _checked(path, tensors)


def read_pt(path: Path) -> dict[str, Any]:
    """A state dict: tensors, and plain values where a library keeps some beside them."""
    _check_size(path, _unpacked(path))
    try:
        with warnings.catch_warnings(action="ignore"):  # on what is refused anyway
            held = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception:  # of damaged bytes torch's reader raises whatever they lead it to
        raise UserError(
            f"{path} is not a whole PyTorch file of tensors and plain values; accepted: a state dict (nothing else is "
            "unpickled)"
        ) from None
    if not isinstance(held, Mapping) or not all(isinstance(name, str) for name in held):
        raise UserError(f"{path} holds {type(held).__name__}; accepted: a state dict, tensors by name")
    tensors = {name: value for name, value in held.items() if isinstance(value, Tensor)}
    return {**held, **_checked(path, tensors)}


def take(
    path: Path,
    tensors: Mapping[str, Any],
    shapes: Shapes,
    ignored: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
) -> Tensors:
    """These tensors, each of its shape; others are refused too, for they would change what a dictionary does.

    Weights are floating-point numbers, but for those that are `whole`: others may be in units of their own.
    """
    for name, shape in shapes.items():
        found = tensors.get(name)
        if not isinstance(found, Tensor) or tuple(found.shape) != shape:
            content = f"of shape {tuple(found.shape)}" if isinstance(found, Tensor) else "not there"
            raise UserError(f"{path}: the tensor {name} is {content}; accepted: shape {shape}")
        if found.is_floating_point() is (name in whole):
            kind = "whole" if name in whole else "floating-point"
            raise UserError(f"{path}: the tensor {name} is of {found.dtype}; accepted: {kind} numbers")
    if unknown := sorted(set(tensors) - set(shapes) - set(ignored)):
        raise UserError(f"{path} holds '{unknown[0]:.60}' too, of unknown meaning; accepted: {', '.join(shapes)}")
    return {name: tensors[name].float() for name in shapes}


def shape_of(path: Path, tensors: Mapping[str, Any], name: str) -> tuple[int, int]:
    """The shape of a matrix."""
    found = tensors.get(name)
    if not isinstance(found, Tensor) or found.ndim != 2 or not found.numel():
        content = f"of shape {tuple(found.shape)}" if isinstance(found, Tensor) else "not there"
        raise UserError(f"{path}: the matrix {name} is {content}; accepted: features and dimensions")
    return found.shape[0], found.shape[1]


def write_safetensors(path: Path, tensors: Tensors) -> None:
    write_bytes(path, safetensors_bytes({name: tensor.contiguous() for name, tensor in tensors.items()}))


def write_npz(path: Path, tensors: Tensors) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: tensor.numpy() for name, tensor in tensors.items()})  # pyright: ignore[reportArgumentType]
    write_bytes(path, buffer.getvalue())


def write_pt(path: Path, tensors: Tensors) -> None:
    buffer = io.BytesIO()
    torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}, buffer)
    write_bytes(path, buffer.getvalue())


def _checked(path: Path, tensors: Tensors) -> Tensors:
    """Numbers in float32, if they are numbers and finite."""
    checked: Tensors = {}
    for name, tensor in tensors.items():
        if tensor.is_complex() or tensor.is_quantized or tensor.is_meta or tensor.layout != torch.strided:
            raise UserError(
                f"{path}: the tensor {name} is {tensor.dtype}, {tensor.layout}, on {tensor.device}; accepted: dense "
                "real numbers"
            )
        checked[name] = tensor.float() if tensor.is_floating_point() else tensor
        if not checked[name].isfinite().all():
            raise UserError(f"{path}: the tensor {name} is not finite everywhere; accepted: finite numbers of float32")
    return checked


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror}; accepted: a file that can be read") from None


def _unpacked(path: Path) -> int:
    """What a zip file says that it holds; of another file, its size."""
    size = _bytes(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return max(size, sum(part.file_size for part in archive.infolist()))
    except Exception:  # of damaged bytes zipfile raises more than BadZipFile; whoever reads them says so
        return size


def _check_size(path: Path, size: int) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 2 * size > memory:
        raise UserError(
            f"{path} holds {size / 2**30:.1f} GiB and this machine has {memory / 2**30:.1f} GiB of memory; accepted: "
            "up to half of it"
        )
