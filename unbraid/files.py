"""Files that are either whole or absent: written aside, flushed to the disk, then renamed into place."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as tensors_from_bytes
from safetensors.numpy import save as tensors_to_bytes

from unbraid.errors import Refusal

Arrays = dict[str, np.ndarray]


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the file as one act; a failure leaves the old file and says in one sentence what stopped it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _flush_folder(path.parent)
    except OSError as problem:
        raise Refusal(
            f"cannot write {path} ({len(content) / 1e6:.1f} MB): {problem.strerror}; accepted: a folder that can be "
            "written, with room to spare"
        ) from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    return (json.dumps(_without_nan(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as problem:
        raise Refusal(f"cannot read {path}: {problem.strerror}") from None
    except (ValueError, RecursionError):
        raise Refusal(f"{path} is damaged: it is not JSON") from None


def read_record(path: Path, *names: str) -> dict[str, Any]:
    """A JSON object that has at least these names."""
    found = read_json(path)
    if not isinstance(found, dict) or not set(names) <= found.keys():
        raise Refusal(f"{path} is damaged; accepted: a JSON object with {', '.join(names)}")
    return found


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    write_bytes(path, tensors_to_bytes({name: np.asarray(array, order="C") for name, array in arrays.items()}))


def read_arrays(path: Path) -> Arrays:
    try:
        return tensors_from_bytes(path.read_bytes())
    except OSError as problem:
        raise Refusal(f"cannot read {path}: {problem.strerror}") from None
    except Exception:  # safetensors raises its own error type for every kind of damage
        raise Refusal(f"{path} is damaged: it is not a safetensors file") from None


def _flush_folder(folder: Path) -> None:
    """Make the rename itself last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what is not finite is written as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    return [_without_nan(item) for item in value] if isinstance(value, list | tuple) else value
