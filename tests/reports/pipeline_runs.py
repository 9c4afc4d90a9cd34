"""Run directories of pipelines, written by hand: settings on models of some seeds, a stack for each member."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.reports.run_files import start_run
from unbraid.config import JsonDict, merge
from unbraid.metrics.intervals import paired_difference
from unbraid.storage.files import json_bytes, write_arrays, write_bytes, write_json
from unbraid.storage.runs import Run

PHI = {"l1": 0.5, "topk": 0.6, "kmeans": 0.3}
CASES: dict[str, JsonDict] = {
    "l1": {"mechanisms": {"sparsity": {"weight": 1.0}}},
    "topk": {"dictionary": {"activation": {"kind": "topk", "k": 8}}},
    "kmeans": {"baseline": {"kind": "kmeans", "n_components": 32}},
}
FACTORS = {"person": 0.1, "place": 0.3, "place_of_mary": -0.2, "place_of_john": -0.4}
"""How far the φ of each factor is from that of all."""
CONCEPTS = {"recovered": 0.5, "split": 0.125, "absorbed": 0.0, "merged": 0.125, "missed": 0.25}
FEATURES = {"match": 0.25, "duplicate": 0.25, "mixture": 0.125, "spurious": 0.25, "dead": 0.125}
LUCK = {"recovered": 0.0, "split": 0.0, "absorbed": 0.0, "merged": 0.25, "missed": 0.75}
WORDS = ["mary", "went", "to", "the", "<garden>", "."]
VALUES = [0.0, -0.5, 0.0, 0.25, 2.0, 0.0]
COMPARED = ("phi", "phi_share", "probe", "dci_disentanglement", "factors_recovered", "accuracy", "l0")


def concept(factor: str, value: str, verdict: str, features: Sequence[int], phi: float | None) -> JsonDict:
    described = {"factor": factor, "value": value, "verdict": verdict, "features": list(features)}
    return {**described, "phi": phi, "ceiling": 0.9, "share": 0.125}


def page(feature: int, verdict: str, concepts: Sequence[str], phi: float = 0.93) -> JsonDict:
    said = {"feature": feature, "verdict": verdict, "concepts": list(concepts), "phi": phi, "threshold": 1.0}
    neighbour = {**said, "feature": feature + 1, "cosine": 0.5, "correlation": -0.25}
    return {
        **said,
        "fires": 0.125,
        "histogram": {"counts": [8, 0, 4], "edges": [0.0, 1.0, 2.0, 3.0]},
        "contexts": [{"words": WORDS, "values": VALUES}],
        "neighbours": [neighbour],
    }


CARD = {
    "concepts": [
        concept("person", "mary", "recovered", [17], 0.93),
        concept("person", "john", "missed", [4], 0.21),
        concept("place of mary", "garden", "unjudged", [], None),
    ],
    "pages": [
        page(17, "match", ["person = mary"]),
        page(3, "mixture", ["place = garden", "place = office"], 0.5),
        page(4, "spurious", [], 0.2),
    ],
}


def config(cases: Mapping[str, JsonDict], seeds: Sequence[int]) -> JsonDict:
    return {
        "title": "A pipeline by hand",
        "seed": 0,
        "world": {"kind": "stories", "task": "one_fact", "layout": "together", "seed": 0},
        "model": {
            "d_model": 16,
            "heads": 4,
            "layers": 2,
            "d_ff": 32,
            "causal": True,
            "attention": {"kind": "softmax"},
            "seed": 0,
            "training": {"steps": 30, "batch": 64, "learning_rate": 0.002},
        },
        "activations": {"site": "blocks.0.hook_resid_post", "stories": 200, "normalize": "center_and_scale"},
        "dictionary": {"d_sae": 64, "activation": {"kind": "relu"}},
        "training": {"steps": 40, "batch": 32, "learning_rate": 0.01},
        "evaluation": {"samples": 500},
        "cases": dict(cases),
        "sweep": {"model.seed": list(seeds)},
    }


def write_pipeline(
    parent: Path,
    name: str = "pipeline",
    cases: Mapping[str, JsonDict] = CASES,
    seeds: Sequence[int] = range(5),
    accuracy: Mapping[str, float] | None = None,
    changes: JsonDict | None = None,
) -> Run:
    """`accuracy` is that of the models behind a case, where it is not 0.8."""
    run = start_run(parent / name, "pipeline", "phi", merge(config(cases, seeds), changes or {}))
    write_json(run.path / "scores.json", scores(list(cases), seeds, accuracy or {}))
    for stack in range(len(cases) * len(seeds)):
        _write_stack(run, stack, stack % len(seeds) == 0)
    return run


def bounds(case: str, accuracy: float) -> dict[str, tuple[float, float | None, float | None]]:
    """Value, chance and ceiling of every score."""
    phi = PHI.get(case, 0.4)
    shares = {f"factors_{name}": (share, LUCK[name], None) for name, share in CONCEPTS.items()}
    shares |= {f"features_{name}": (share, FEATURES[name], None) for name, share in FEATURES.items()}
    return {
        "l0": (8.0, None, None),
        "phi": (phi, 0.1, 0.9),
        "phi_share": ((phi - 0.1) / 0.8, 0.0, 1.0),
        **{f"phi_{name}": (phi + by, 0.1 + by / 10, 0.9 + by / 4) for name, by in FACTORS.items()},
        "probe": (0.9, 0.9, None),
        **shares,
        "dci_disentanglement": (0.3 + phi / 10, 0.25, None),
        "mig": (0.02, 0.01, None),
        "accuracy": (accuracy, 0.59, 1.0),
    }


def scores(cases: Sequence[str], seeds: Sequence[int], accuracy: Mapping[str, float]) -> JsonDict:
    cards, every = [], []
    for index, case in enumerate(cases):
        members = [
            {"stack": index * len(seeds) + place, "member": 0, "seed": 0, "replicate": f"0/{seed}/0"}
            for place, seed in enumerate(seeds)
        ]
        found = bounds(case, accuracy.get(case, 0.8))
        metrics = {metric: _metric(metric, *bound, len(seeds)) for metric, bound in found.items()}
        every.append({metric: dict(enumerate(card["members"])) for metric, card in metrics.items()})
        cards.append({"label": case, "setting": {"case": case}, "members": members, "metrics": metrics})
    differences = [_difference(index, metric, every) for index in range(1, len(cases)) for metric in COMPARED]
    return {"settings": cards, "differences": differences}


def _metric(metric: str, value: float, chance: float | None, ceiling: float | None, amount: int) -> JsonDict:
    """Replicates of φ are up to 0.02 apart; all other scores are the same in each."""
    apart = np.linspace(-0.01, 0.01, amount) if metric.startswith("phi") and amount > 1 else np.zeros(amount)
    described = {"value": value, "interval": [value - 0.01, value + 0.01] if amount > 1 else None}
    return {**described, "chance": chance, "ceiling": ceiling, "members": (value + apart).tolist()}


def _difference(index: int, metric: str, every: Sequence[Mapping[str, Mapping[int, float]]]) -> JsonDict:
    ours, first = ({str(key): value for key, value in one[metric].items()} for one in (every[index], every[0]))
    found = paired_difference(ours, first)
    described = {"setting": index, "reference": 0, "metric": metric, "value": found.estimate.value}
    return {**described, "interval": found.estimate.interval, "pairs": found.pairs, "verdict": found.verdict}


def _write_stack(run: Run, stack: int, shown: bool) -> None:
    lines = [{"step": step, "terms": {"reconstruction": [1 / step]}, "l0": [8.0]} for step in (10, 20, 40)]
    text = b"".join(json_bytes(line).replace(b"\n", b" ") + b"\n" for line in lines)
    write_bytes(run.stack(stack) / "log.jsonl", text)
    write_arrays(run.stack(stack) / "tables.safetensors", {"density": np.full((1, 4), 0.1)})
    write_json(run.stack(stack) / "features.json", {"members": {"0": CARD} if shown else {}})
