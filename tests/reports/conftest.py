"""Run directories written by hand: reports know a run by its files alone, so nothing is trained here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reports.run_files import ENVIRONMENT, start_run
from unbraid.reports.canvas import Section
from unbraid.reports.page import write_report
from unbraid.reports.run_results import RunResults
from unbraid.reports.sections import draw
from unbraid.storage.files import json_bytes, write_arrays, write_bytes, write_json
from unbraid.storage.runs import Run

METRICS = {
    "mmcs": (0.8123, 0.189, 1.0),
    "mcc": (0.7734, 0.1803, 1.0),
    "recovered": (0.6421, 0.0, 1.0),
    "precision": (0.5312, 0.0165, 1.0),
    "recall": (0.9214, 0.8311, 1.0),
    "f1": (0.4876, 0.0321, 1.0),
    "l0": (7.312, None, 5.034),
    "density": (0.0142, None, 0.00983),
    "dead": (2.4, None, None),
    "explained_variance": (0.9371, 0.0, 1.0),
    "reconstruction_error": (0.000271, 0.00644, 4.98e-18),
}
"""Value, chance and ceiling of the first setting's first replicate."""


@dataclass(frozen=True)
class Recipe:
    """What the run directory should look like."""

    name: str = "tiny"
    title: str = "A tiny run"
    weights: tuple[float, ...] = (0.05, 0.15)
    seeds: tuple[int, ...] = (0, 1, 2)
    world_seeds: tuple[int, ...] = (0,)
    true: int = 12
    learned: int = 12
    steps: tuple[int, ...] = (10, 20, 30, 40)
    equal_rates: bool = False
    dead: int = 0
    state: str = "finished"
    sentence: str = ""
    label: Callable[[float], str] = field(default=lambda weight: f"weight {weight:g}")

    def replicates(self) -> list[tuple[int, int]]:
        return [(world, seed) for world in self.world_seeds for seed in self.seeds]


def write_run(parent: Path, recipe: Recipe) -> Run:
    environment = {**ENVIRONMENT, "packages": {"unbraid": "0.1.0", "numpy": "2.4.6"}}
    run = start_run(
        parent / recipe.name, "dictionaries", "mmcs", config(recipe), recipe.state, recipe.sentence, environment
    )
    if recipe.state == "finished":
        write_json(run.path / "scores.json", scores(recipe))
        for stack, _ in enumerate(recipe.world_seeds):
            write_stack(run, stack, recipe)
    return run


def config(recipe: Recipe) -> dict[str, Any]:
    return {
        "title": recipe.title,
        "seed": 0,
        "world": {
            "kind": "superposition",
            "dimensions": 8,
            "n_features": recipe.true,
            "active": 2.0,
            "decay": 0.9,
            "noise": 0.0,
        },
        "dictionary": {"d_sae": recipe.learned, "activation": {"kind": "relu"}},
        "training": {"steps": recipe.steps[-1], "batch": 64, "learning_rate": 0.01},
        "mechanisms": {"sparsity": {"weight": 0.1, "form": "per_sample"}},
        "sweep": {
            "mechanisms.sparsity.weight": list(recipe.weights),
            "seed": list(recipe.seeds),
            "world.seed": list(recipe.world_seeds),
        },
    }


def members_of(recipe: Recipe, setting: int) -> list[dict[str, Any]]:
    """Stacks hold one world each; within a stack settings come first, then seeds."""
    return [
        {
            "stack": recipe.world_seeds.index(world),
            "member": setting * len(recipe.seeds) + recipe.seeds.index(seed),
            "seed": seed,
            "replicate": f"{world}/{seed}",
        }
        for world, seed in recipe.replicates()
    ]


def scores(recipe: Recipe) -> dict[str, Any]:
    settings = []
    for index, weight in enumerate(recipe.weights):
        metrics = {}
        for metric, (value, chance, ceiling) in METRICS.items():
            values = [value * (1 - 0.03 * index) * (1 + 0.01 * each) for each in range(len(recipe.replicates()))]
            interval = [min(values), max(values)] if len(values) > 1 else None
            mean = sum(values) / len(values)
            bounds = {"interval": interval, "chance": chance, "ceiling": ceiling}
            metrics[metric] = {"value": mean, **bounds, "members": values}
        setting = {"mechanisms.sparsity.weight": weight}
        card = {"label": recipe.label(weight), "setting": setting, "members": members_of(recipe, index)}
        settings.append({**card, "metrics": metrics})
    return {"settings": settings, "differences": differences(recipe)}


def differences(recipe: Recipe) -> list[dict[str, Any]]:
    verdicts = {"mmcs": "lower", "f1": "higher", "l0": "undecided"}
    values = {"mmcs": (-0.0244, [-0.03, -0.02]), "f1": (0.0311, [0.0002, 0.04]), "l0": (0.21, [-0.1, 0.5])}
    pairs = len(recipe.replicates())
    return [
        {
            "setting": index,
            "reference": 0,
            "metric": metric,
            "value": values[metric][0],
            "interval": values[metric][1] if pairs > 1 else None,
            "pairs": pairs,
            "verdict": verdict if pairs > 1 else "undecided",
        }
        for index in range(1, len(recipe.weights))
        for metric, verdict in verdicts.items()
    ]


def write_stack(run: Run, stack: int, recipe: Recipe) -> None:
    members, rng = len(recipe.weights) * len(recipe.seeds), np.random.default_rng(stack)
    lines = [
        {
            "step": step,
            "rate": 1.0,
            "terms": {"reconstruction": [1 / step] * members, "sparsity": [0.1 + 0.01 * m for m in range(members)]},
            "l0": [8.0 + m for m in range(members)],
            "mmcs": [min(1.0, 0.2 + step / 100)] * members,
        }
        for step in recipe.steps
    ]
    text = b"".join(json_bytes(line).replace(b"\n", b" ") + b"\n" for line in lines)
    write_bytes(run.stack(stack) / "log.jsonl", text)
    density = rng.uniform(0.01, 0.4, (members, recipe.learned))
    density[:, : recipe.dead] = 0
    rates = np.full(recipe.true, 0.2) if recipe.equal_rates else 0.4 * 0.8 ** np.arange(recipe.true)
    tables = {
        "best_cosine": rng.uniform(0.2, 1, (members, recipe.true)).astype(np.float32),
        "density": density,
        "probabilities": rates,
    }
    for setting in range(len(recipe.weights)):
        cosine = rng.uniform(-0.3, 1, (recipe.true, min(recipe.learned, 2 * recipe.true)))
        tables[f"cosines.{setting * len(recipe.seeds)}"] = cosine.astype(np.float16)
    write_arrays(run.stack(stack) / "tables.safetensors", tables)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """`make_run(seeds=(0,))` writes a run that differs so from the usual one."""

    def make(**changes: Any) -> Run:
        return write_run(tmp_path / "runs", Recipe(**changes))

    return make


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path]:
    """The usual run and its page, drawn once for all tests that only look at it."""
    folder = tmp_path_factory.mktemp("drawn")
    run = write_run(folder / "runs", Recipe())
    return run, write_report([run], run.path / "report.html")


@pytest.fixture(scope="module")
def sections(results: RunResults) -> list[Section]:
    """All there are of a module's results, drawn once for all its tests that only look at them."""
    return draw(results)


@pytest.fixture(scope="module")
def section(sections: list[Section]) -> Callable[[str], Section]:
    """The one of this heading."""
    return {one.heading: one for one in sections}.__getitem__
