"""Files of arrays that need not fit in memory, in the format of safetensors: written in pieces, read where they lie.

8 bytes: the length of a JSON object · the object: type, shape and place of every array · the arrays, end to end
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unbraid.storage.files import Arrays, Damaged, write_parts

NAMES = {
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "int32": "I32",
    "float16": "F16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""What safetensors calls the types that we save, in the order in which it lays them out."""
TYPES = {name: dtype for dtype, name in NAMES.items()}


@dataclass(frozen=True)
class Piecewise:
    """An array whose pieces come one after the other, in the order of its bytes, when it is written."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Iterable[np.ndarray]


def write_pieces(path: Path, arrays: Mapping[str, np.ndarray | Piecewise]) -> None:
    """The file that `write_arrays` would write, byte for byte, with one piece in memory at a time."""
    order = sorted(arrays, key=lambda name: (list(NAMES).index(arrays[name].dtype.name), name))
    facts, end = {}, 0
    for name in order:
        dtype, shape = arrays[name].dtype, list(arrays[name].shape)
        start, end = end, end + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        facts[name] = {"dtype": NAMES[dtype.name], "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    write_parts(path, _parts(header, [arrays[name] for name in order]), 8 + len(header) + end)


def _parts(header: bytes, arrays: Iterable[np.ndarray | Piecewise]) -> Iterator[bytes | memoryview]:
    yield len(header).to_bytes(8, "little")
    yield header
    for array in arrays:
        for piece in array.pieces if isinstance(array, Piecewise) else [array]:
            yield np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data


def map_arrays(path: Path) -> Arrays:
    """The arrays as they lie in the file: what is read of them comes from there."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            facts = json.loads(file.read(length))
        facts.pop("__metadata__", None)
        data = np.memmap(path, np.uint8, "r", offset=8 + length) if path.stat().st_size > 8 + length else b""
        return {name: _mapped(data, card) for name, card in facts.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        raise Damaged(f"{path} is damaged: it is not a safetensors file", path) from None


def _mapped(data: Any, card: dict[str, Any]) -> np.ndarray:
    start, stop = card["data_offsets"]
    return np.frombuffer(data[start:stop], TYPES[card["dtype"]]).reshape(card["shape"])
