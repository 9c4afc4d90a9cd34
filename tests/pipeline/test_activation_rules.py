"""Every activation rule through a whole run: saved, stopped, resumed to the same bits, and loaded for use."""

from pathlib import Path

import pytest
import torch

from tests.pipeline.running import Dying, Killed, create, finish, results, run_config
from unbraid.config import JsonDict
from unbraid.dictionaries import ACTIVATIONS
from unbraid.pipeline.trained import load_stack
from unbraid.storage.files import read_arrays
from unbraid.storage.runs import Run

SETTINGS = {"topk": {"k": 3}, "batchtopk": {"k": 3}}
CASES = {kind: {"dictionary": {"activation": {"kind": kind, **SETTINGS.get(kind, {})}}} for kind in ACTIVATIONS}
CONFIG: JsonDict = {
    "world": {"dimensions": 6, "n_features": 9, "active": 2.0},
    "dictionary": {"d_sae": 8, "pre_bias": True},
    "training": {"steps": 8, "batch": 16, "learning_rate": 0.02},
    "evaluation": {"samples": 64},
    "checkpoints": {"every": 5, "log_every": 2},
    "cases": {**CASES, "matryoshka": {"mechanisms": {"matryoshka": {}, "sparsity": {}}}},
    "sweep": {"seed": [0, 1]},
}
RESULTS = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(tmp_path_factory.mktemp("runs"), "whole", CONFIG)


def test_every_case_is_a_setting_with_its_name(finished: Run):
    assert [setting["label"] for setting in finished.scores()["settings"]] == list(CONFIG["cases"])
    assert all(len(setting["members"]) == 2 for setting in finished.scores()["settings"])


@pytest.mark.parametrize("case", CONFIG["cases"])
def test_stopped_after_a_checkpoint_it_ends_with_the_same_bits(case: str, finished: Run, tmp_path: Path):
    stopped = create(tmp_path, "stopped", {**CONFIG, "cases": {case: CONFIG["cases"][case]}})
    with pytest.raises(Killed):
        finish(stopped, Dying(f"{case} · 2 seeds · training", 7))
    assert [path.stem for path in stopped.cache.glob("*/checkpoints/*.json")] == ["step-000000005"]
    index = list(CONFIG["cases"]).index(case)
    expected = results(finished, *RESULTS)
    assert results(finish(stopped), *RESULTS) == {f"00/{name}": expected[f"{index:02d}/{name}"] for name in RESULTS}


def test_a_loaded_stack_has_all_the_rule_owns(finished: Run):
    for index, (kind, rule) in enumerate(ACTIVATIONS.items()):
        stack = load_stack(finished.path, index)
        assert isinstance(stack.activation, rule), kind
        saved = read_arrays(finished.stack(index) / "weights.safetensors")
        assert stack.tensors().keys() == saved.keys()
        assert all(torch.equal(tensor, torch.from_numpy(saved[name])) for name, tensor in stack.tensors().items())
        if kind == "batchtopk":
            assert (stack.memory["threshold"] > 0).all()
