"""Run directories of gauge language models, written by hand: a stack a setting, two seeds in each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.reports.run_files import start_run
from unbraid.config import JsonDict, merge
from unbraid.storage.files import json_bytes, write_arrays, write_bytes, write_json
from unbraid.storage.runs import Run

LABELS = ["ℓ0"] * 5 + ["ℓ1"] * 3 + ["ℓ2"]
WORDS = [" ", "a", "\n", "$", "b", "a"]
SEEDS = (0, 1)
FLOOR = 0.1234
ROW_STD = np.array([[0.02, 0.06, 0.11] * 3, [0.04, 0.08, 0.09] * 3])
"""Members × heads: in the mean .03, .07 and .10."""
SHARPNESS = np.linspace(0.1, 0.9, 9)


def config(swept: dict[str, Sequence[float]]) -> JsonDict:
    return {
        "title": "Language by hand",
        "world": {"kind": "text", "text": "primer", "units": "characters", "context": len(WORDS)},
        "model": {
            "kind": "gauge",
            "irreps": "5x0e + 3x1e + 1x2e",
            "temperature": "shared",
            "kappa": 0.25,
            "training": {"steps": 20, "batch": 8, "learning_rate": 0.02},
        },
        "sweep": {**swept, "seed": list(SEEDS)},
    }


def write_language_models(
    parent: Path,
    path: str = "model.kappa",
    values: Sequence[float] = (0.25, 0.005),
    changes: JsonDict | None = None,
    labels: Sequence[str] = LABELS,
    masked: bool = False,
) -> Run:
    written = merge(config({path: list(values)}), changes or {})
    run = start_run(parent / "language", "language_models", "perplexity", written)
    cards = [_card(stack, path, value, labels) for stack, value in enumerate(values)]
    write_json(run.path / "scores.json", {"settings": cards, "differences": []})
    for stack in range(len(values)):
        _write_stack(run, stack, labels, masked)
    return run


def _card(stack: int, path: str, value: float, labels: Sequence[str]) -> JsonDict:
    found: dict[str, tuple[float, float | None]] = {
        "perplexity": (8.5 + stack, 19.0),
        "bits_per_character": (3.1, 4.2),
        "row_std": (0.0667, FLOOR),
        "sharpness": (0.5, 0.0),
        "sharp_heads": (1.5, None),
        "medium_heads": (4.5, None),
        "kl_mean": (2.75, None),
        "kl_std": (1.74, None),
        "gradient_spikes": (2.0, None),
        "parameters": (3885.0, None),
        "seconds": (4.0, None),
    }
    for place, label in enumerate(dict.fromkeys(labels)):
        name = label.replace("ℓ", "l")
        found |= {f"row_std_{name}": (0.03 + place / 100, FLOOR), f"sharpness_{name}": (0.2 + place / 4, 0.0)}
    metrics = {
        name: {
            "value": value,
            "interval": [0.9 * value, 1.1 * value],
            "chance": chance,
            "ceiling": None,
            "members": [0.9 * value, 1.1 * value],
        }
        for name, (value, chance) in found.items()
    }
    members = [{"stack": stack, "member": seed, "seed": seed, "replicate": f"0/{seed}"} for seed in SEEDS]
    label = f"{path.split('.')[-1]} {value:g}"
    return {"label": label, "setting": {path: value}, "members": members, "metrics": metrics}


def _write_stack(run: Run, stack: int, labels: Sequence[str], masked: bool) -> None:
    log = {"step": 20, "rate_factor": 1.0, "terms": {"answers": [2.0, 2.1]}, "perplexity": [7.4, 8.2]}
    write_bytes(run.stack(stack) / "log.jsonl", json_bytes(log).replace(b"\n", b" ") + b"\n")
    heads = len(labels)
    by_head = {
        "row_std": np.resize(ROW_STD, (2, 1, heads)),
        "sharpness": np.resize(SHARPNESS, (2, 1, heads)),
        "effective_keys": np.full((2, 1, heads), 2.5),
        "kl_mean": np.full((2, 1, heads), 0.3),
        "kl_std": np.full((2, 1, heads), 0.2),
    }
    seen = np.tril(np.ones((len(WORDS), len(WORDS))), -1 if masked else 0)
    seen[0, 0] = 1
    pattern = np.broadcast_to(seen / seen.sum(1, keepdims=True), (2, 1, heads, len(WORDS), len(WORDS)))
    tables = {**by_head, "row_std_uniform": np.full(2, FLOOR), "pattern.0": pattern.astype(np.float32)}
    write_arrays(run.stack(stack) / "tables.safetensors", tables)
    card = {
        "members": {"0": [{"words": WORDS}, {"words": WORDS}]},
        "heads": list(labels),
        "irreps": "5x0e + 3x1e + 1x2e",
        "context": len(WORDS),
        "bigram": {"perplexity": 9.0},
        "samples": {"0": {"prompt": "a", "text": "b"}},
    }
    write_json(run.stack(stack) / "texts.json", card)
    write_json(run.stack(stack) / "members.json", [{"setting": {}, "seed": s, "replicate": f"0/{s}"} for s in SEEDS])
