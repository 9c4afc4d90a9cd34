"""Whole runs on a device: trained, captured, evaluated and resumed there, with the scores of the CPU."""

import json

import pytest

from tests.pipeline.running import create, finish, run_config
from unbraid.devices import Hardware
from unbraid.errors import UserError
from unbraid.pipeline.expand import expand
from unbraid.pipeline.stage import in_order

SMALL_WORLD = {"kind": "superposition", "dimensions": 8, "n_features": 12, "active": 2.0}
DICTIONARIES = {
    "world": SMALL_WORLD,
    "dictionary": {"d_sae": 16, "pre_bias": True, "activation": {"kind": "topk", "k": 3}},
    "training": {"steps": 8, "batch": 32, "learning_rate": 1e-2},
    "mechanisms": {"pair_orthogonality": {}},
    "evaluation": {"samples": 512},
    "tracking": {"checks": 2, "samples": 256},
    "sweep": {"seed": [0, 1]},
}
STORIES = {"kind": "stories", "task": "one_fact"}
MODEL = {"d_model": 8, "heads": 2, "d_ff": 8, "layers": 1}
MODEL |= {"training": {"steps": 4, "batch": 8}, "evaluation": {"stories": 64, "heads": 16, "shown": 1}}
MODELS = {"kind": "models", "world": STORIES, "model": MODEL}
PIPELINE = {
    **MODELS,
    "kind": "pipeline",
    "activations": {"stories": 60},
    "dictionary": {"d_sae": 16},
    "training": {"steps": 8, "batch": 32, "learning_rate": 1e-2},
    "mechanisms": {"sparsity": {"weight": 0.05}},
    "evaluation": {"samples": 200, "pairs": 4},
}
CROSSCODER = {"activations": {"stories": 60, "input": ["blocks.0.hook_resid_pre", "blocks.0.hook_mlp_out"]}}
CROSSCODER["activations"]["target"] = CROSSCODER["activations"]["input"]
TEXT = {"kind": "language_models", "world": {"kind": "text", "context": 8, "vocabulary": 300}, "model": MODEL}
CONFIGS = {
    "dictionaries": DICTIONARIES,
    "models": MODELS,
    "pipeline": PIPELINE,
    "crosscoder": PIPELINE | CROSSCODER,
}
LONG = {"models", "crosscoder"}
"""Whose parts the others have too."""


@pytest.fixture(autouse=True)
def devices_of_tests(monkeypatch):
    """A configuration may name the device that is not there."""
    monkeypatch.setattr("unbraid.pipeline.experiment.DEVICE", r"auto|cpu|cuda(:\d+)?|mps|lazy:0")


def scores(run):
    return json.loads((run.path / "scores.json").read_text())["settings"]


def metrics(run):
    return {name: value["members"] for setting in scores(run) for name, value in setting["metrics"].items()}


SHORT_FIRST = [pytest.param(kind, marks=pytest.mark.slow) if kind in LONG else kind for kind in CONFIGS]


@pytest.mark.parametrize("kind", SHORT_FIRST)
def test_a_run_on_a_device_scores_as_on_the_cpu(kind, tmp_path, device):
    there = metrics(run_config(tmp_path, "there", CONFIGS[kind] | {"device": device}))
    here = metrics(run_config(tmp_path, "here", CONFIGS[kind]))
    assert there.keys() == here.keys()
    for name, values in here.items():
        if name != "seconds":
            assert there[name] == pytest.approx(values, abs=0.02, rel=0.02, nan_ok=True), name


def test_a_run_that_was_stopped_goes_on_there_with_the_same_bits(tmp_path, lazy):
    from tests.pipeline.running import Dying, Killed, results

    config = DICTIONARIES | {"device": lazy, "checkpoints": {"every": 2}}
    whole = results(run_config(tmp_path / "a", "whole", config), "weights.safetensors")
    run = create(tmp_path / "b", "cut", config)
    stage = next(s for s in stages(config) if s.kind == "train-stack")
    with pytest.raises(Killed):
        finish(run, Dying(stage.name, 5))
    assert results(finish(run), "weights.safetensors") == whole


def stages(config):
    plan = expand(config, "here")
    return in_order([stage for stack in plan.stacks for stage in stack.first.stages(stack)])


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_a_device_or_a_precision_changes_has_keys_of_its_own(kind, lazy):
    """And what was always made, float32 on the CPU, keeps the keys it had: they do not name it."""
    plain, there, narrow = (
        {stage.kind: stage.key for stage in stages(CONFIGS[kind] | asked)}
        for asked in ({}, {"device": lazy}, {"precision": "bfloat16"})
    )
    for name, key in plain.items():
        assert len({key, there[name], narrow[name]}) == 3, name
    for stage in stages(CONFIGS[kind]):
        assert "hardware" not in stage.config


def test_which_of_several_gpus_it_was_does_not_matter(monkeypatch):
    monkeypatch.setattr("unbraid.devices.available_devices", lambda: ["cuda:0", "cuda:1", "cpu"])
    monkeypatch.setattr("unbraid.devices._have_one_order", lambda: None)
    keys = [{s.key for s in stages(DICTIONARIES | {"device": name})} for name in ("auto", "cuda", "cuda:0", "cuda:1")]
    assert keys[0] == keys[1] == keys[2] == keys[3]
    assert Hardware.of("auto", "float32").device == "cuda:0"


@pytest.mark.parametrize("name", ["cuda", "cuda:3", "mps"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(name, tmp_path, monkeypatch):
    monkeypatch.setattr("unbraid.devices.available_devices", lambda: ["cpu"])
    with pytest.raises(UserError, match=f"the device '{name}' is not here; accepted: auto, cpu$"):
        stages(DICTIONARIES | {"device": name})


@pytest.mark.parametrize("asked", [{"device": "gpu"}, {"device": "cuda:x"}, {"precision": "float8"}])
def test_words_that_are_no_device_or_precision_are_refused(asked):
    with pytest.raises(UserError, match=r"accepted: 'auto'|bfloat16"):
        expand(DICTIONARIES | asked, "here")


def test_precision_can_be_swept(tmp_path):
    config = DICTIONARIES | {"sweep": {"precision": ["float32", "bfloat16"], "seed": [0, 1]}}
    settings = [setting["setting"] for setting in scores(run_config(tmp_path, "both", config))]
    assert settings == [{"precision": "float32"}, {"precision": "bfloat16"}]


def test_the_environment_names_the_accelerators(tmp_path):
    from unbraid.devices import device_names

    run = create(tmp_path, "one", DICTIONARIES)
    assert run.environment()["accelerators"] == device_names()
