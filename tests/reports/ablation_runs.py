"""The run directory of an ablation, written by hand from closed forms.

Every score is straight in log L0, so what a mechanism adds at equal L0 is known exactly.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np

from tests.reports.run_files import start_run
from unbraid.storage.files import json_bytes, write_arrays, write_bytes, write_json, write_sealed
from unbraid.storage.runs import Run

MECHANISMS = [
    *("pair_orthogonality", "adaptive_tau", "dynamic_pairs", "correlation_pruning", "momentum_importance"),
    *("adaptive_l1", "lateral_inhibition", "adaptive_neighbourhoods", "reallocation"),
]
NEEDS = {
    "adaptive_tau": "pair_orthogonality",
    "dynamic_pairs": "pair_orthogonality",
    "momentum_importance": "correlation_pruning",
    "adaptive_neighbourhoods": "lateral_inhibition",
}
WEIGHTS, SEEDS, LEARNED, TRUE, STEPS = [0.03, 0.1, 0.3], [0, 1, 2, 3, 4], 64, 48, list(range(50, 2001, 50))
LEVELS = {
    "mmcs": (0.9, -0.02, 0.02, 0.19, 1.0),
    "recovered": (0.7, -0.05, 0.02, 0.0, 1.0),
    "explained_variance": (0.7, 0.08, -0.004, 0.0, 1.0),
    "dead": (9.0, -1.5, -0.6, None, None),
    "redundancy": (0.55, -0.03, -0.02, 0.31, 0.22),
    "correlation": (0.35, 0.03, -0.015, 0.12, 0.08),
    "absorption": (0.4, -0.12, -0.012, 0.001, 0.0),
}
"""Plain's score at L0 1, its slope in log L0, what a mechanism adds, chance, ceiling."""


def cases() -> dict[str, set[str]]:
    """Each case's mechanisms."""
    every = set(MECHANISMS)
    return {
        "plain": set(),
        **{f"run-{step}": set(MECHANISMS[:step]) for step in range(1, 9)},
        "all": every,
        **{f"alone-{name}": {name, *[NEEDS[one] for one in [name] if one in NEEDS]} for name in MECHANISMS[1:]},
        **{
            f"without-{name}": every - {name, *[one for one in NEEDS if NEEDS[one] == name]} for name in MECHANISMS[:-1]
        },
        "published-all": every,
    }


def effect(metric: str, mechanisms: set[str], seed: int) -> float:
    """What these mechanisms add at any L0: the first one, the second none, the third again one, …"""
    each = LEVELS[metric][2] * (1 + 0.6 * math.sin(7 * seed + len(metric)))
    return sum(each * (1 - MECHANISMS.index(name) % 2) for name in mechanisms)


def l0(case: str, weight: float, seed: int) -> float:
    """Inhibition alone is far sparser than anything else, and shares no L0 with plain."""
    apart = {"alone-lateral_inhibition": 0.02, "published-all": 0.3}.get(case, 1 - 0.01 * len(case))
    return apart * 3.0 * (0.3 / weight) ** 0.6 * (1 + 0.01 * seed)


def score(metric: str, case: str, weight: float, seed: int) -> float:
    if metric == "l0":
        return l0(case, weight, seed)
    level, slope, *_ = LEVELS[metric]
    mechanisms = set() if case.startswith("published") else cases()[case]
    return level + slope * math.log(l0(case, weight, seed)) + effect(metric, mechanisms, seed) + 0.004 * math.cos(seed)


def write_ablation(path: Path, evaluated: bool = False, seeds: list[int] = SEEDS) -> Run:
    """One stack, whose members are cases × weights × seeds in this order."""
    run = start_run(path, "dictionaries", "mmcs", config(seeds))
    settings = []
    for place, (case, weight) in enumerate(itertools.product(cases(), WEIGHTS)):
        members = [
            {"stack": 0, "member": place * len(seeds) + at, "seed": seed, "replicate": f"0/{seed}"}
            for at, seed in enumerate(seeds)
        ]
        swept = {"case": case, "mechanisms.sparsity.weight": weight}
        card = {"label": f"{case}, weight {weight:g}", "setting": swept, "members": members}
        settings.append({**card, "metrics": {name: metric(name, case, weight, seeds) for name in ("l0", *LEVELS)}})
    write_json(path / "scores.json", {"settings": settings, "differences": []})
    write_stack(run.stack(0), seeds)
    if evaluated:
        write_sealed(path / "language_model.json", language_model_scores(settings))
    return run


def config(seeds: list[int]) -> dict[str, Any]:
    return {
        "title": "An ablation",
        "seed": 0,
        "world": {"kind": "superposition", "dimensions": 16, "n_features": TRUE, "active": 4.0, "noise": 0.0},
        "dictionary": {"d_sae": LEARNED, "activation": {"kind": "relu"}},
        "training": {"steps": STEPS[-1], "batch": 64, "learning_rate": 0.01},
        "mechanisms": {"sparsity": {"weight": 0.1, "form": "per_sample"}},
        "cases": {
            case: {"mechanisms": {name: {} for name in sorted(own)}} if own else {"training": {"batch": 64}}
            for case, own in cases().items()
        },
        "sweep": {"mechanisms.sparsity.weight": WEIGHTS, "seed": seeds},
    }


def metric(name: str, case: str, weight: float, seeds: list[int]) -> dict[str, Any]:
    values = [score(name, case, weight, seed) for seed in seeds]
    chance, ceiling = (None, 4.0) if name == "l0" else LEVELS[name][3:]
    interval = [min(values), max(values)] if len(values) > 1 else None
    mean = sum(values) / len(values)
    return {"value": mean, "interval": interval, "chance": chance, "ceiling": ceiling, "members": values}


def write_stack(folder: Path, seeds: list[int]) -> None:
    members = list(itertools.product(cases(), WEIGHTS, seeds))
    lines = [
        {
            "step": step,
            "terms": {
                "reconstruction": [reconstruction(case, step, seed) for case, _, seed in members],
                "sparsity": [0.1 + 0.01 * seed for _, _, seed in members],
            },
            "l0": [l0(*member) * (1 + 20 * math.exp(-step / 200)) for member in members],
            "mmcs": [1 - math.exp(-step / 500) for _ in members],
        }
        for step in STEPS
    ]
    write_bytes(folder / "log.jsonl", b"".join(json_bytes(line).replace(b"\n", b" ") + b"\n" for line in lines))
    rng = np.random.default_rng(0)
    rates = 0.3 * 0.93 ** np.arange(TRUE)
    density = np.stack([np.resize(rates, LEARNED) * rng.uniform(0.7, 1.3, LEARNED) for _ in members])
    for row, (case, _, seed) in enumerate(members):
        density[row, : max(0, 9 - len(cases()[case])) + seed % 2] = 0
    cosine = rng.uniform(0.2, 1, (len(members), TRUE))
    write_arrays(folder / "tables.safetensors", {"best_cosine": cosine, "density": density, "probabilities": rates})


def reconstruction(case: str, step: int, seed: int) -> float:
    return (1 - 0.03 * len(cases()[case])) * (0.2 + 5 * math.exp(-step / 300)) * (1 + 0.01 * seed)


def language_model_scores(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """What `unbraid evaluate` writes, as far as figures read it."""
    steps = {"1": 0.66, "2": 0.71, "5": 0.77, "10": 0.82, "20": 0.85, "50": 0.9, "full": 0.93}
    cards = []
    for one in settings:
        own = 0.004 * len(cases()[one["setting"]["case"]])
        metrics = {
            f"probe_{k}": {
                "value": value + own,
                "interval": [value + own - 0.01, value + own + 0.012],
                "error": 0.005,
                "chance": value - 0.08,
                "ceiling": None,
                "members": [value + own] * len(one["members"]),
            }
            for k, value in steps.items()
        }
        cards.append({**one, "metrics": metrics})
    raw = {f"probe_{k}": {"value": value - 0.03, "error": 0.006} for k, value in steps.items()}
    return {
        "model": "stories15M",
        "site": "blocks.3.hook_resid_post",
        "text": "stories.jsonl",
        "labelled": ["ag_news.jsonl", "emotion.jsonl"],
        "settings": cards,
        "differences": [],
        "baselines": {"raw activations": raw, "the mean": {}},
        "probes": {"ag_news": {}, "emotion": {}},
        "letters": {},
        "warnings": ["Letters are <few>."],
    }
