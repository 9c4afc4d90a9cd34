"""The state to resume from: the last two are kept, each with a checksum, so a torn one is seen and passed over.

A checkpoint is `step-N.safetensors` with its `step-N.json` (step, facts, checksum of the arrays); the JSON is
written last and makes the checkpoint count.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbraid.errors import Refusal
from unbraid.files import Arrays, json_bytes, read_arrays, read_json, write_arrays, write_bytes

KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    step: int
    arrays: Arrays
    facts: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write it, then drop all but the last two, and any later ones: they belong to a past that was damaged."""
    arrays_path = folder / f"step-{checkpoint.step:09d}.safetensors"
    write_arrays(arrays_path, checkpoint.arrays)
    card = {"step": checkpoint.step, "facts": checkpoint.facts, "arrays_sha256": _sha256(arrays_path.read_bytes())}
    card["card_sha256"] = _sha256(json_bytes(card))
    write_bytes(arrays_path.with_suffix(".json"), json_bytes(card))
    cards = [path for path in sorted(folder.glob("step-*.json"), reverse=True) if path.stem <= arrays_path.stem]
    kept = {path.stem for path in cards[:KEPT]}
    for card in folder.glob("step-*.json"):
        if card.stem not in kept:
            card.unlink(missing_ok=True)
    for arrays in folder.glob("step-*.safetensors"):
        if arrays.stem not in kept:
            arrays.unlink(missing_ok=True)
    return arrays_path


def load_latest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole, and a sentence for each damaged one passed over."""
    damaged: list[str] = []
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            return _load(path), damaged
        except Refusal as problem:
            damaged.append(f"{problem}; it is passed over")
    return None, damaged


def _load(path: Path) -> Checkpoint:
    card, arrays_path = read_json(path), path.with_suffix(".safetensors")
    try:
        claimed = card.pop("card_sha256")
        whole = claimed == _sha256(json_bytes(card))
        whole = whole and card["arrays_sha256"] == _sha256(arrays_path.read_bytes())
    except (KeyError, AttributeError, TypeError, OSError, json.JSONDecodeError):
        whole = False
    if not whole:
        raise Refusal(f"the checkpoint {path.with_suffix('')} is damaged (its checksum does not match)")
    return Checkpoint(card["step"], read_arrays(arrays_path), card["facts"])


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
