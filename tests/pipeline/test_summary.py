"""From members' scores to settings' scores, on run directories written by hand."""

from pathlib import Path
from typing import Any

import pytest

from unbraid.config.sweep import label
from unbraid.metrics.catalog import METRICS
from unbraid.pipeline.expand import expand
from unbraid.pipeline.summary import summarize
from unbraid.storage.files import write_json
from unbraid.storage.runs import Run

LIGHT, HEAVY = {"mechanisms.sparsity.weight": 0.1}, {"mechanisms.sparsity.weight": 0.2}


def write_stack(run: Run, index: int, members: list[tuple[dict[str, object], int]], mmcs: list[float]) -> None:
    cards = [{"setting": setting, "seed": seed, "replicate": f"0/{seed}"} for setting, seed in members]
    write_json(run.stack(index) / "members.json", cards)
    values = dict.fromkeys((name for name, metric in METRICS.items() if metric.compared), mmcs)
    write_json(run.stack(index) / "scores.json", {"values": values, "chance": {"mmcs": 0.2}, "ceiling": {"mmcs": 1.0}})


def test_settings_gather_their_members_across_stacks_and_are_compared_by_seed(tmp_path: Path):
    run = Run(tmp_path)
    plan = expand({"sweep": {"mechanisms.sparsity.weight": [0.2, 0.1], "seed": [0, 1]}}, "here")
    write_stack(run, 0, [(LIGHT, 0), (HEAVY, 0)], [0.5, 0.7])
    write_stack(run, 1, [(HEAVY, 1), (LIGHT, 1)], [0.9, 0.6])
    summary = summarize(run, plan.members)
    assert [setting["label"] for setting in summary["settings"]] == ["weight 0.2", "weight 0.1"]  # as they were swept
    second, first = summary["settings"]
    assert first["metrics"]["mmcs"]["value"] == pytest.approx(0.55)
    assert second["metrics"]["mmcs"]["members"] == [0.7, 0.9]
    assert first["metrics"]["mmcs"]["chance"] == 0.2
    assert first["metrics"]["mcc"]["chance"] is None
    assert [member["stack"] for member in second["members"]] == [0, 1]
    difference = next(d for d in summary["differences"] if d["metric"] == "mmcs")
    assert difference["value"] == pytest.approx(((0.5 - 0.7) + (0.6 - 0.9)) / 2)
    assert (difference["pairs"], difference["verdict"]) == (2, "undecided")  # two pairs decide nothing


def test_labels_say_what_was_swept():
    assert (
        label({"training.steps": 5, "dictionary.activation": {"kind": "topk", "k": 3}}) == "steps 5, activation topk 3"
    )
    assert label({"case": "gated", "training.steps": 5}) == "gated, steps 5"
    assert label({}) == "the one setting"


def differences(run: Run, kind: str, swept: str, metric: str) -> list[dict[str, Any]]:
    """Of two cases on two worlds, first of the one and then of the other case: each world costs .4, each case .1."""
    plan = expand({"kind": kind, "cases": {"none": {}, "other": {}}, "sweep": {swept: [3, 5]}}, "here")
    settings = [{"case": case, swept: value} for case in ("none", "other") for value in (3, 5)]
    write_stack(run, 0, [(setting, 0) for setting in settings], [0.9, 0.5, 0.8, 0.4])
    return [entry for entry in summarize(run, plan.members)["differences"] if entry["metric"] == metric]


def test_models_are_compared_with_the_first_of_the_same_world(tmp_path: Path):
    entries = differences(Run(tmp_path), "models", "world.rounds", "accuracy")
    assert [(entry["setting"], entry["reference"]) for entry in entries] == [(2, 0), (3, 1)]
    assert [entry["value"] for entry in entries] == pytest.approx([-0.1, -0.1])


def test_dictionaries_are_compared_with_the_first_of_all(tmp_path: Path):
    entries = differences(Run(tmp_path), "dictionaries", "world.dimensions", "mmcs")
    assert [(entry["setting"], entry["reference"]) for entry in entries] == [(1, 0), (2, 0), (3, 0)]
    assert [entry["value"] for entry in entries] == pytest.approx([-0.4, -0.1, -0.5])
