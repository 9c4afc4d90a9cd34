"""`unbraid judge` from end to end on a tiny model: what it writes, what it prints, and what it refuses."""

import json
import math

import pytest

from unbraid.capture.capturing import Capturing, capture
from unbraid.cli import app, guarded
from unbraid.config import merge, to_toml
from unbraid.metrics.absorption import WARNING
from unbraid.progress import Silent
from unbraid.runs import Run
from unbraid.sweeps.execute import execute
from unbraid.sweeps.prepare import prepare

CONFIG = {
    "world": {"kind": "activations"},
    "dictionary": {"features": 24, "activation": {"kind": "topk", "k": 3}},
    "training": {"steps": 20, "batch": 32},
    "scoring": {"samples": 64},
    "sweep": {"dictionary.activation.k": [3, 6], "seed": [0, 1]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, model, middle, text):
    folder = tmp_path_factory.mktemp("judged")
    capture(model, middle, text, folder / "shards", Capturing(context=16), Silent())
    config = prepare(merge(CONFIG, {"world": {"path": str(folder / "shards")}}), [], "test")
    made = Run.create(folder, "tiny", to_toml(config))
    execute(made, Silent())
    return made


def judge(*words):
    return guarded(lambda: app(["judge", *map(str, words)]))


@pytest.fixture(scope="module")
def judged(run, folder, text, labelled):
    files = [labelled / "told.jsonl", labelled / "untold.jsonl"]
    options = [word for file in files for word in ("--labels", file)]
    assert judge(run.path, folder, text, *options, "--texts", 150, "--context", 16, "--quiet") == 0
    return json.loads((run.path / "judged.json").read_text())


def test_every_score_has_a_value_an_interval_and_chance(judged):
    assert judged["site"] == "blocks.0.hook_resid_post"
    assert [one["setting"] for one in judged["settings"]] == [{"dictionary.activation.k": k} for k in (3, 6)]
    for one, k in zip(judged["settings"], (3, 6), strict=True):
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


def test_a_trained_dictionary_is_judged_better_than_chance(judged):
    for one in judged["settings"]:
        assert one["metrics"]["explained_variance"]["value"] > one["metrics"]["explained_variance"]["chance"]


def test_raw_activations_stand_beside_and_data_sets_apart(judged):
    raw = judged["beside"]["raw activations"]
    assert raw["probe_full"]["value"] > 0.5
    assert set(judged["probes"]) == {"told", "untold"}
    mean = sum(judged["probes"][name]["raw"]["1"]["value"] for name in ("told", "untold")) / 2
    assert raw["probe_1"]["value"] == pytest.approx(mean)
    assert judged["beside"]["the mean"]["loss_recovered"]["value"] < 1


def test_the_warning_is_there_and_letters_are_too(judged):
    assert WARNING in judged["warnings"]
    assert "letters can be told" in judged["warnings"][1]
    assert {one["letter"] for one in judged["letters"]["0/0/0"]} <= set("abcde")


def test_differences_are_paired_by_seed(judged):
    found = {one["metric"]: one for one in judged["differences"]}
    assert found["l0"]["value"] == pytest.approx(3, abs=0.5)
    assert found["l0"]["pairs"] == 2
    assert found["l0"]["verdict"] == "undecided"
    assert "ce_clean" not in found


def test_it_prints_a_table_and_where_it_wrote(run, folder, text, capsys):
    assert judge(run.path, folder, text, "--no-letters", "--tokens", 60, "--context", 16) == 0
    out = capsys.readouterr().out
    assert "Loss recovered" in out
    assert "minus k 3" in out
    assert out.rstrip().splitlines()[-1].replace("\n", "").endswith("judged.json")


def test_one_replicate_has_the_error_of_the_text(tmp_path, run, folder, text, capsys):
    config = prepare(
        {**{key: value for key, value in CONFIG.items() if key != "sweep"}, "world": run.config()["world"]}, [], "test"
    )
    alone = Run.create(tmp_path, "alone", to_toml(config))
    execute(alone, Silent())
    assert judge(alone.path, folder, text, "--no-letters", "--context", 16) == 0
    out = capsys.readouterr().out
    assert "±" in out
    assert "luck of the texts" in out


@pytest.fixture
def planted(tmp_path):
    """A run on a planted world of the model's width: it has no site of its own."""
    config = {"world": {"dimensions": 32, "features": 16}, "dictionary": {"features": 8}, "scoring": {"samples": 64}}
    made = Run.create(tmp_path, "planted", to_toml(prepare({**config, "training": {"steps": 2, "batch": 8}}, [], "t")))
    execute(made, Silent())
    return made


def refused(capsys, *words):
    assert judge(*words) == 2
    message = capsys.readouterr().err.strip()
    assert len(message.splitlines()) == 1
    return message


def test_a_planted_dictionary_needs_a_site_and_can_then_be_judged(planted, folder, text, capsys):
    assert "was not trained on a model's activations" in refused(capsys, planted.path, folder, text, "--quiet")
    words = ("--site", "blocks.1.hook_resid_pre", "--no-letters", "--context", 16, "--quiet")
    assert judge(planted.path, folder, text, *words) == 0


def test_what_cannot_be_judged_is_refused_in_one_sentence(run, folder, text, tmp_path, capsys):
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
