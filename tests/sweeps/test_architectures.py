"""Every kind of dictionary through a whole run: saved, stopped, gone on with to the same bits, and loaded for use."""

import shutil
from pathlib import Path

import pytest
import torch
from unbraid.sweeps.grid import resolve

from unbraid.config import JsonDict, to_toml
from unbraid.dictionaries import ACTIVATIONS
from unbraid.pipeline.executors import execute
from unbraid.pipeline.trained import load_stack
from unbraid.progress import Silent
from unbraid.storage.files import read_arrays
from unbraid.storage.runs import Run

SETTINGS = {"topk": {"k": 3}, "batchtopk": {"k": 3}}
CASES = {kind: {"dictionary": {"activation": {"kind": kind, **SETTINGS.get(kind, {})}}} for kind in ACTIVATIONS}
CONFIG: JsonDict = {
    "world": {"dimensions": 6, "n_features": 9, "active": 2.0},
    "dictionary": {"d_sae": 8, "pre_bias": True},
    "training": {"steps": 8, "batch": 16, "learning_rate": 0.02},
    "scoring": {"samples": 64},
    "saving": {"checkpoint_every": 5, "log_every": 2},
    "cases": {**CASES, "matryoshka": {"mechanisms": {"matryoshka": {}, "sparsity": {}}}},
    "sweep": {"seed": [0, 1]},
}
RESULTS = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.create(tmp_path_factory.mktemp("runs"), "whole", to_toml(resolve(CONFIG, "here")))
    execute(run, Silent())
    return run


def test_every_case_is_a_setting_with_its_name(finished: Run):
    assert [setting["label"] for setting in finished.scores()["settings"]] == list(CONFIG["cases"])
    assert all(len(setting["members"]) == 2 for setting in finished.scores()["settings"])


def test_stopped_half_way_it_ends_with_the_same_bits(finished: Run, tmp_path: Path):
    stopped = Run(Path(shutil.copytree(finished.path, tmp_path / "stopped")))
    for folder in stopped.stacks():
        for path in [*folder.glob("checkpoints/step-000000008*"), *(folder / name for name in RESULTS[::3])]:
            path.unlink()
        (folder / "scores.json").unlink()
        assert len(list(folder.glob("checkpoints/*.json"))) == 1
    execute(stopped, Silent())
    for before, after in zip(finished.stacks(), stopped.stacks(), strict=True):
        assert all((before / name).read_bytes() == (after / name).read_bytes() for name in RESULTS)


def test_a_loaded_stack_has_all_the_rule_owns(finished: Run):
    for index, (kind, rule) in enumerate(ACTIVATIONS.items()):
        stack = load_stack(finished.path, index)
        assert isinstance(stack.activation, rule), kind
        saved = read_arrays(finished.stack(index) / "weights.safetensors")
        assert stack.tensors().keys() == saved.keys()
        assert all(torch.equal(tensor, torch.from_numpy(saved[name])) for name, tensor in stack.tensors().items())
        if kind == "batchtopk":
            assert (stack.memory["threshold"] > 0).all()
