"""One cache for every kind of run: the same again makes nothing, a change what depends on it, damage is noticed."""

import shutil
from pathlib import Path

import pytest

from tests.pipeline.running import Recorded, results, run_config
from unbraid.config import JsonDict, merge
from unbraid.pipeline import dictionary_stages, embedding_stage, language_model_stage, model_stages
from unbraid.pipeline.expand import expand
from unbraid.pipeline.kinds import KINDS
from unbraid.pipeline.stage import Stage
from unbraid.storage.runs import Run

WORLD = {"dimensions": 6, "n_features": 9, "active": 2.0}
STORIES = {"kind": "stories", "people": 2, "places": 3, "rounds": 2}
MODEL = {
    "d_model": 8,
    "heads": 2,
    "layers": 1,
    "d_ff": 8,
    "training": {"steps": 4, "batch": 8},
    "evaluation": {"stories": 20, "heads": 6},
}
DICTIONARIES: JsonDict = {
    "world": WORLD,
    "dictionary": {"d_sae": 8},
    "training": {"steps": 4, "batch": 16},
    "evaluation": {"samples": 64},
}
CONFIGS: dict[str, JsonDict] = {
    "dictionaries": {
        **DICTIONARIES,
        "cases": {"plain": {"dictionary": {"pre_bias": True}}, "sparse": {"mechanisms": {"sparsity": {"weight": 0.1}}}},
    },
    "baselines": {
        "world": WORLD,
        "baseline": {"kind": "pca", "n_components": 4},
        "samples": {"n": 40},
        "evaluation": {"samples": 64},
        "cases": {"pca": {}, "kmeans": {"baseline": {"kind": "kmeans", "n_components": 4}}},
    },
    "models": {
        "kind": "models",
        "world": STORIES,
        "model": MODEL,
        "cases": {"none": {}, "orthogonality": {"constraints": {"orthogonality": {"weight": 0.1}}}},
    },
    "language_models": {
        "kind": "language_models",
        "world": {"kind": "text", "context": 12, "characters": 5000, "validation": 400},
        "model": {**MODEL, "evaluation": {"heads": 4, "shown": 1}},
        "cases": {"none": {}, "orthogonality": {"constraints": {"orthogonality": {"weight": 0.1}}}},
    },
    "pipeline": {
        "kind": "pipeline",
        "world": STORIES,
        "model": MODEL,
        "activations": {"stories": 200},
        "dictionary": {"d_sae": 8},
        "training": {"steps": 4, "batch": 16},
        "evaluation": {"samples": 300},
        "cases": {"plain": {}, "sparse": {"mechanisms": {"sparsity": {"weight": 0.1}}}},
    },
    "embedding": {
        "kind": "embedding",
        "world": WORLD,
        "embedding": {"perplexity": 10.0, "iterations": 250},
        "samples": {"n": 64},
        "sweep": {"world.decay": [0.8, 1.0]},
    },
}
CHANGES: dict[str, tuple[JsonDict, list[str]]] = {
    "dictionaries": (
        {"cases": {"sparse": {"mechanisms": {"sparsity": {"weight": 0.2}}}}},
        ["train-stack", "evaluate-stack"],
    ),
    "baselines": ({"cases": {"kmeans": {"baseline": {"n_components": 5}}}}, ["baseline"]),
    "models": (
        {"cases": {"orthogonality": {"constraints": {"orthogonality": {"weight": 0.2}}}}},
        ["train-models", "evaluate-models"],
    ),
    "language_models": (
        {"cases": {"orthogonality": {"constraints": {"orthogonality": {"weight": 0.2}}}}},
        ["train-text-models", "evaluate-text-models"],
    ),
    "pipeline": (
        {"cases": {"sparse": {"mechanisms": {"sparsity": {"weight": 0.2}}}}},
        ["train-stack", "evaluate-stack", "causal"],
    ),
    "embedding": ({"sweep": {"world.decay": [0.8, 0.9]}}, ["embedding"]),
}
"""One mechanism, constraint or member setting of the last case, and the stages that this makes again."""
VERSIONS: dict[str, tuple[type[Stage], list[str]]] = {
    "dictionaries": (dictionary_stages.EvaluateStack, ["evaluate-stack"] * 2),
    "baselines": (dictionary_stages.FitBaselines, ["baseline"] * 2),
    "models": (model_stages.TrainModels, ["train-models", "evaluate-models"] * 2),
    "language_models": (model_stages.EvaluateTextModels, ["evaluate-text-models"] * 2),
    "pipeline": (
        model_stages.CaptureActivations,
        ["capture", "probe", "causal-bounds", *["train-stack", "evaluate-stack", "causal"] * 2],
    ),
    "embedding": (embedding_stage.EmbedSamples, ["embedding"] * 2),
}
"""A stage whose version is raised, and all that this makes again: it, and what depends on it."""


def test_every_kind_is_tested():
    assert CONFIGS.keys() == CHANGES.keys() == VERSIONS.keys() == {*KINDS, "baselines"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    """A finished run of each kind, made when it is first asked for."""
    runs: dict[str, Run] = {}

    def finish(kind: str) -> Run:
        if kind not in runs:
            runs[kind] = run_config(tmp_path_factory.mktemp(kind), "first", CONFIGS[kind])
        return runs[kind]

    return finish


def run_again(first: Run, parent: Path, config: JsonDict) -> tuple[Run, Recorded]:
    """A second run beside a copy of the first and of its cache."""
    shutil.copytree(first.path.parent, parent, dirs_exist_ok=True)
    recorded = Recorded()
    return run_config(parent, "second", config, recorded), recorded


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_same_again_makes_no_stage_and_gives_the_same_bits(kind: str, finished, tmp_path: Path):
    first = finished(kind)
    second, recorded = run_again(first, tmp_path, CONFIGS[kind])
    assert recorded.kinds == []
    assert recorded.said == []
    assert second.scores() == first.scores()
    assert results(second, "scores.json", "members.json") == results(first, "scores.json", "members.json")


@pytest.mark.parametrize("kind", CONFIGS)
def test_one_changed_setting_makes_only_what_depends_on_it(kind: str, finished, tmp_path: Path):
    change, expected = CHANGES[kind]
    second, recorded = run_again(finished(kind), tmp_path, merge(CONFIGS[kind], change))
    assert recorded.kinds == expected
    untouched, changed = (
        [setting["metrics"] for setting in run.scores()["settings"]] for run in (finished(kind), second)
    )
    assert changed[0] == untouched[0]
    assert changed[1] != untouched[1]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_raised_version_makes_that_stage_and_what_depends_on_it_again(kind: str, finished, tmp_path, monkeypatch):
    stage, expected = VERSIONS[kind]
    monkeypatch.setattr(stage, "version", stage.version + 1)
    second, recorded = run_again(finished(kind), tmp_path, CONFIGS[kind])
    assert sorted(recorded.kinds) == sorted(expected)
    assert recorded.said == [], "another version is made again, not refused"
    for ours, theirs in zip(second.scores()["settings"], finished(kind).scores()["settings"], strict=True):
        without = {name: score for name, score in theirs["metrics"].items() if name != "seconds"}
        assert {name: score for name, score in ours["metrics"].items() if name != "seconds"} == without


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_damaged_stage_is_set_aside_and_made_again_and_that_is_said(kind: str, finished, tmp_path: Path):
    shutil.copytree(finished(kind).path.parent, tmp_path, dirs_exist_ok=True)
    plan = expand(CONFIGS[kind], "here")
    stage = plan.first.stages(plan.stacks[0])[-1]
    scores = tmp_path / "cache" / stage.key / "scores.json"
    scores.write_text(scores.read_text().replace("0.", "1.", 1))
    recorded = Recorded()
    second = run_config(tmp_path, "second", CONFIGS[kind], recorded)
    assert recorded.kinds == [stage.kind]
    (sentence,) = recorded.said
    assert str(scores) in sentence
    assert f"set aside as {tmp_path / 'cache' / f'damaged-{stage.key}-1'} and made again" in sentence
    assert second.scores() == finished(kind).scores()


def test_two_settings_that_are_one_stage_are_made_once(tmp_path: Path):
    """Cases with other names and the same settings."""
    recorded = Recorded()
    config = {**DICTIONARIES, "cases": {"a": {"training": {"batch": 8}}, "b": {"training": {"batch": 8}}}}
    run = run_config(tmp_path, "run", {**config, "sweep": {"dictionary.d_sae": [4, 6]}}, recorded)
    assert len(run.scores()["settings"]) == 4
    assert recorded.kinds == ["train-stack", "evaluate-stack"] * 2


def test_every_stage_kind_has_a_name_of_its_own():
    modules = (dictionary_stages, embedding_stage, language_model_stage, model_stages)
    stages = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Stage) and "kind" in vars(value)
    }
    kinds = [stage.kind for stage in stages]
    assert len(kinds) == len(set(kinds)) == 11
