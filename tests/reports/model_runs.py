"""Run directories of models, written by hand: two tasks, two settings, two seeds, a stack for each member."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.reports.run_files import start_run
from unbraid.config import JsonDict, merge
from unbraid.storage.files import json_bytes, write_arrays, write_bytes, write_json
from unbraid.storage.runs import Run

WORDS = [*("mary", "went", "to", "the", "garden", "."), *("john", "went", "to", "the", "office", ".")]
WORDS += ["where", "is", "mary", "?"]
ASKED, SUPPORT = 15, [0, 1, 2, 3, 4, 5]
LAYERS, HEADS = 2, 4
ACCURACY = {"none": 0.98, "orthogonality": 0.71}
CHANCE = {"one_fact": 0.47, "counting": 0.31}
STEPS = (10, 20, 30)
STORY = {"words": WORDS, "asked": [ASKED], "answers": ["garden"], "said": ["garden"], "support": [SUPPORT]}


def config(cases: Sequence[str], tasks: Sequence[str], seeds: Sequence[int]) -> JsonDict:
    return {
        "title": "Models by hand",
        "seed": 0,
        "world": {"kind": "stories", "task": tasks[0], "layout": "together", "seed": 0},
        "model": {
            "d_model": 16,
            "heads": HEADS,
            "layers": LAYERS,
            "d_ff": 32,
            "causal": True,
            "readout": "question",
            "attention": {"kind": "softmax"},
            "training": {"steps": STEPS[-1], "batch": 64, "learning_rate": 0.002},
        },
        "cases": {case: {} if case == "none" else {"constraints": {case: {"weight": 0.1}}} for case in cases},
        "sweep": {"world.task": list(tasks), "seed": list(seeds)},
    }


def write_models(
    parent: Path,
    name: str = "models",
    cases: Sequence[str] = ("none", "orthogonality"),
    tasks: Sequence[str] = ("one_fact", "counting"),
    seeds: Sequence[int] = (0, 1),
    changes: JsonDict | None = None,
    tables: dict[str, np.ndarray] | None = None,
) -> Run:
    run = start_run(parent / name, "models", "accuracy", merge(config(cases, tasks, seeds), changes or {}))
    settings = list(product(cases, tasks))
    write_json(run.path / "scores.json", scores(settings, seeds, len(tasks)))
    for stack, ((case, task), seed) in enumerate(product(settings, seeds)):
        write_stack(run, stack, case, task, seed, tables or {})
    return run


def scores(settings: list[tuple[str, str]], seeds: Sequence[int], tasks: int) -> JsonDict:
    cards = []
    for index, (case, task) in enumerate(settings):
        members = [
            {"stack": index * len(seeds) + place, "member": 0, "seed": seed, "replicate": f"0/{seed}"}
            for place, seed in enumerate(seeds)
        ]
        found = {
            "accuracy": (ACCURACY.get(case, 0.4), CHANCE.get(task, 0.4), 1.0),
            "support_best": (0.8 if case == "none" else 0.5, 0.2, None),
            "attention_entropy": (0.3, 1.0, None),
            "parameters": (12345.0, None, None),
        }
        metrics = {metric: _metric(*bounds, len(seeds)) for metric, bounds in found.items()}
        card = {"label": f"{case}, {task}", "setting": {"case": case, "world.task": task}}
        cards.append({**card, "members": members, "metrics": metrics})
    differences = [one for index in range(tasks, len(cards)) for one in _differences(index, index % tasks)]
    return {"settings": cards, "differences": differences}


def _metric(value: float, chance: float | None, ceiling: float | None, amount: int) -> JsonDict:
    bounds = {"interval": [value - 0.01, value + 0.01], "chance": chance, "ceiling": ceiling}
    return {"value": value, **bounds, "members": [value] * amount}


def _differences(index: int, reference: int) -> list[JsonDict]:
    found = {"accuracy": (-0.27, "lower"), "support_best": (-0.3, "undecided")}
    return [
        {
            "setting": index,
            "reference": reference,
            "metric": metric,
            "value": value,
            "interval": [value - 0.1, value + 0.1],
            "pairs": 5,
            "verdict": verdict,
        }
        for metric, (value, verdict) in found.items()
    ]


def write_stack(run: Run, stack: int, case: str, task: str, seed: int, tables: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(stack)
    terms = {"answers": [1.0]} if case == "none" else {"answers": [1.0], case: [0.1]}
    lines = [{"step": step, "rate_factor": 1.0, "terms": terms, "accuracy": [step / 40]} for step in STEPS]
    text = b"".join(json_bytes(line).replace(b"\n", b" ") + b"\n" for line in lines)
    write_bytes(run.stack(stack) / "log.jsonl", text)
    by_head: dict[str, Any] = {
        name: rng.uniform(0.05, 1, (1, LAYERS, HEADS))
        for name in (
            "support",
            "support_untrained",
            "attention_entropy",
            "importance",
            "needed",
            "largest_drop",
            "dealt_drop",
        )
    }
    patterns = rng.dirichlet([0.5] * len(WORDS), (1, LAYERS, HEADS, len(WORDS)))
    uniform = np.array([6 / 16])
    kept = {
        **by_head,
        "activity": by_head["attention_entropy"],
        "uniform": uniform,
        "pattern.0": patterns.astype(np.float16),
    }
    write_arrays(run.stack(stack) / "tables.safetensors", {**kept, **tables})
    shortcuts = {"last statement": CHANCE.get(task, 0.4), "most frequent": 0.2, "asked: any": 0.7, "chance": 0.4}
    shortcuts |= {} if task == "ratio" else {"without the question": 0.61}
    write_json(run.stack(stack) / "stories.json", {"members": {"0": [STORY]}, "shortcuts": shortcuts, "factors": []})
    write_json(run.stack(stack) / "members.json", [{"setting": {}, "seed": seed, "replicate": f"0/{seed}"}])
