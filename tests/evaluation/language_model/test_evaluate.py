"""`unbraid evaluate` from end to end on a tiny model: what it writes, what it prints, and what it refuses."""

import json
import math

import pytest

from unbraid.activations.capture import CaptureConfig, capture_sites
from unbraid.cli import app, guarded
from unbraid.config import merge, to_toml
from unbraid.metrics.absorption import WARNING
from unbraid.pipeline.expand import expand
from unbraid.pipeline.run import carry_out
from unbraid.progress import Silent
from unbraid.signals import StopSignals
from unbraid.storage.runs import Run

CONFIG = {
    "world": {"kind": "activations"},
    "dictionary": {"d_sae": 24, "activation": {"kind": "topk", "k": 3}},
    "training": {"steps": 20, "batch": 32},
    "evaluation": {"samples": 64},
    "sweep": {"dictionary.activation.k": [3, 6], "seed": [0, 1]},
}


def trained(folder, name, config):
    """A finished run of this configuration, without a report."""
    plan = expand(config, "test")
    run = Run.create(folder, name, to_toml(plan.config), plan.facts())
    with StopSignals("") as signals:
        carry_out(run, plan, Silent(), signals, lambda run: run.path)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory, model, middle, text):
    folder = tmp_path_factory.mktemp("evaluated")
    captured = CaptureConfig(model=model.name, text=str(text), site=middle.name, context=16)
    capture_sites(model, [middle], captured, folder / "shards", Silent())
    return trained(folder, "tiny", merge(CONFIG, {"world": {"path": str(folder / "shards")}}))


def evaluate(*words):
    return guarded(lambda: app(["evaluate", *map(str, words)]))


@pytest.fixture(scope="module")
def scores(run, folder, text, labelled):
    files = [labelled / "told.jsonl", labelled / "untold.jsonl"]
    options = [word for file in files for word in ("--labels", file)]
    assert evaluate(run.path, folder, text, *options, "--texts", 150, "--context", 16, "--quiet") == 0
    return json.loads((run.path / "language_model.json").read_text())


def test_every_score_has_a_value_an_interval_and_chance(scores):
    assert scores["site"] == "blocks.0.hook_resid_post"
    assert [one["setting"] for one in scores["settings"]] == [{"dictionary.activation.k": k} for k in (3, 6)]
    for one, k in zip(scores["settings"], (3, 6), strict=True):
        metrics = one["metrics"]
        assert metrics["l0"]["value"] == pytest.approx(k, abs=0.5)
        for name in ("loss_recovered", "kl", "explained_variance", "cosine", "dead", "probe_1", "probe_full"):
            low, high = metrics[name]["interval"]
            assert low <= metrics[name]["value"] <= high, name
            assert len(metrics[name]["members"]) == 2
            assert math.isfinite(metrics[name]["chance"])
        assert metrics["ce_clean"]["chance"] is None
        assert metrics["probe_1"]["error"] > 0
        assert metrics["loss_recovered"]["error"] > 0


def test_a_trained_dictionary_scores_better_than_chance(scores):
    for one in scores["settings"]:
        assert one["metrics"]["explained_variance"]["value"] > one["metrics"]["explained_variance"]["chance"]


def test_raw_activations_stand_beside_and_data_sets_apart(scores):
    raw = scores["baselines"]["raw activations"]
    assert raw["probe_full"]["value"] > 0.5
    assert set(scores["probes"]) == {"told", "untold"}
    mean = sum(scores["probes"][name]["raw"]["1"]["value"] for name in ("told", "untold")) / 2
    assert raw["probe_1"]["value"] == pytest.approx(mean)
    assert scores["baselines"]["the mean"]["loss_recovered"]["value"] < 1


def test_the_warning_is_there_and_letters_are_too(scores):
    assert WARNING in scores["warnings"]
    assert "letters can be probed" in scores["warnings"][1]
    assert {one["letter"] for one in scores["letters"]["0/0/0"]} <= set("abcde")


def test_differences_are_paired_by_seed(scores):
    found = {one["metric"]: one for one in scores["differences"]}
    assert found["l0"]["value"] == pytest.approx(3, abs=0.5)
    assert found["l0"]["pairs"] == 2
    assert found["l0"]["verdict"] == "undecided"
    assert "ce_clean" not in found


def test_it_prints_a_table_and_where_it_wrote(run, folder, text, capsys):
    assert evaluate(run.path, folder, text, "--no-letters", "--tokens", 60, "--context", 16) == 0
    out = capsys.readouterr().out
    assert "Loss recovered" in out
    assert "minus k 3" in out
    assert out.rstrip().splitlines()[-1].replace("\n", "").endswith("language_model.json")


def test_one_replicate_has_the_error_of_the_text(tmp_path, run, folder, text, capsys):
    plain = {key: value for key, value in CONFIG.items() if key != "sweep"}
    alone = trained(tmp_path, "alone", {**plain, "world": run.config()["world"]})
    assert evaluate(alone.path, folder, text, "--no-letters", "--context", 16) == 0
    out = capsys.readouterr().out
    assert "±" in out
    assert "over texts, not over seeds" in out


@pytest.fixture
def planted(tmp_path):
    """A run on a planted world of the model's width: it has no site of its own."""
    config = {"world": {"dimensions": 32, "n_features": 16}, "dictionary": {"d_sae": 8}, "evaluation": {"samples": 64}}
    return trained(tmp_path, "planted", {**config, "training": {"steps": 2, "batch": 8}})


def refused(capsys, *words):
    assert evaluate(*words) == 2
    message = capsys.readouterr().err.strip()
    assert len(message.splitlines()) == 1
    return message


def test_a_planted_dictionary_needs_a_site_and_can_then_be_evaluated(planted, folder, text, capsys):
    assert "was not trained on a model's activations" in refused(capsys, planted.path, folder, text, "--quiet")
    words = ("--site", "blocks.1.hook_resid_pre", "--no-letters", "--context", 16, "--quiet")
    assert evaluate(planted.path, folder, text, *words) == 0


def test_what_cannot_be_evaluated_is_refused_in_one_sentence(run, folder, text, tmp_path, capsys):
    quiet = ("--context", 16, "--quiet")
    assert "there is no run" in refused(capsys, "none", folder, text, *quiet)
    assert "no such text" in refused(capsys, run.path, folder, tmp_path / "none.txt", *quiet)
    assert "has no site 'blocks.7" in refused(
        capsys, run.path, folder, text, "--site", "blocks.7.hook_resid_pre", *quiet
    )
    assert "cannot read" in refused(capsys, run.path, folder, text, "--labels", tmp_path / "none.jsonl", *quiet)
    assert "tokens" in refused(capsys, run.path, folder, text, "--tokens", 0, *quiet)
    twice = [word for name in ("a/x.jsonl", "b/x.jsonl") for word in ("--labels", tmp_path / name)]
    assert "are of one name" in refused(capsys, run.path, folder, text, *twice, *quiet)
    for context in (2, 33):
        said = refused(capsys, run.path, folder, text, "--context", context, "--quiet")
        assert f"a context of {context} was asked for" in said
        assert "accepted: 3 to 32" in said
    (tmp_path / "empty.txt").write_text("\n\n")
    assert "is empty" in refused(capsys, run.path, folder, tmp_path / "empty.txt", *quiet)
    assert "there is no folder" in refused(capsys, run.path, tmp_path / "none", text, *quiet)


def test_another_model_or_width_is_refused(run, model, folder, text, tmp_path, planted, capsys):
    other = tmp_path / "other"
    model.tokenizer.save_pretrained(other)
    before = model.model.model.norm.weight.data.clone()
    model.model.model.norm.weight.data.mul_(2)
    model.model.save_pretrained(other)
    model.model.model.norm.weight.data.copy_(before)
    capsys.readouterr()
    assert "has other weights" in refused(capsys, run.path, other, text, "--quiet")
    words = ("--site", "model.layers.0.mlp.gate_proj", "--context", 16, "--quiet")
    assert "takes 32 dimensions" in refused(capsys, planted.path, folder, text, *words)
