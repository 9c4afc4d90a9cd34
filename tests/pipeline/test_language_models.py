"""Runs of language models: what they leave, how they go on after any stop, what they refuse."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.running import Dying, Killed, create, finish, results, run_config
from unbraid.evaluation.text_models import first_windows, held_out_loss, ngram_baselines
from unbraid.evaluation.uniformity import track
from unbraid.models.training import ModelState
from unbraid.pipeline.expand import expand
from unbraid.pipeline.kinds import models as models_kind
from unbraid.pipeline.trained import load_models
from unbraid.storage.checkpoints import read_log
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

CONFIG = """
kind = "language_models"
[world]
kind = "text"
context = 12
characters = 5000
validation = 400
[model]
d_model = 8
heads = 2
layers = 2
d_ff = 8
[model.training]
steps = 9
batch = 8
learning_rate = 1e-2
[model.evaluation]
heads = 4
shown = 2
[checkpoints]
log_every = 2
every = 3
[cases.none]
[cases.orthogonality.constraints.orthogonality]
weight = 0.1
[sweep]
seed = [0, 1]
"""
KEPT = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors", "members.json", "texts.json")


@pytest.fixture(scope="module", autouse=True)
def one_by_one():
    """Models so small would be trained in one stack."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models_kind, "SMALL_STEP", 0)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(tmp_path_factory.mktemp("language"), "whole", CONFIG)


def test_a_run_leaves_scores_with_chance_and_differences(whole: Run):
    scores = whole.scores()
    metrics = scores["settings"][0]["metrics"]
    world = expand(whole.config(), "c").first.world
    for metric, floor in ngram_baselines(world)["unigram"].items():
        assert metrics[metric]["chance"] == pytest.approx(floor)
        assert len(metrics[metric]["members"]) == 2
    assert metrics["perplexity"]["members"][0] == pytest.approx(math.exp(metrics["loss"]["members"][0]))
    assert {"gradient_spikes", "gradient_peak", "parameters", "seconds"} <= metrics.keys()
    assert not {"accuracy", "steps_to_95"} & metrics.keys()
    assert {entry["metric"] for entry in scores["differences"]} >= {"loss", "perplexity", "bits_per_character"}


def test_the_log_tells_loss_perplexity_and_gradients(whole: Run):
    lines = read_log(whole.stack(2) / "log.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 9]
    assert set(lines[0]["terms"]) == {"answers", "orthogonality"}
    assert lines[0]["loss"] == lines[0]["terms"]["answers"]
    assert lines[0]["perplexity"] == pytest.approx([math.exp(lines[0]["loss"][0])])
    assert lines[0]["gradient_norm"][0] > 0
    assert "accuracy" in lines[0]


def test_texts_tell_windows_heads_pairs_and_how_models_write(whole: Run):
    card, tables = read_json(whole.stack(0) / "texts.json"), read_arrays(whole.stack(0) / "tables.safetensors")
    world = expand(whole.config(), "c").first.world
    assert [len(window["words"]) for window in card["members"]["0"]] == [12, 12]
    assert card["heads"] == ["softmax", "softmax"]
    assert (card["irreps"], card["context"], card["characters_per_token"]) == ("", 12, 1.0)
    assert card["bigram"] == pytest.approx(ngram_baselines(world)["bigram"])
    assert len(world.tokenized.tokenizer.encode(card["samples"]["0"]["text"])) == 120
    assert tables["pattern.0"].shape == (2, 2, 2, 12, 12)
    assert tables["pattern.0"].dtype == np.float32


FIRST = "none · seed 0/0 · training"


@pytest.mark.parametrize(("name", "step"), [(FIRST, 1), (FIRST, 5), ("none · seed 0/1 · training", 9)])
def test_killed_at_any_step_it_goes_on_to_the_same_bits(name: str, step: int, whole: Run, tmp_path: Path):
    run = create(tmp_path, "victim", CONFIG)
    with pytest.raises(Killed):
        finish(run, Dying(name, step))
    assert results(finish(run), *KEPT) == results(whole, *KEPT)


def test_the_first_models_heads_are_described_every_tenth_line_of_the_log(tmp_path: Path, capsys):
    run_config(tmp_path, "described", CONFIG.replace("steps = 9", "steps = 41"))
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("step")] == ["step 20, none", "step 40, none", "step 41, none"]
    assert said[1].startswith("Head 0 (softmax): row_std=0.")
    assert said[1].endswith("(uniform: 0.0674)")  # of 12 tokens
    assert len(said) == 3 * (1 + 2)


def test_gradient_spikes_are_counted_through_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("unbraid.models.training.GRADIENT_SPIKE", 0.0)
    run = create(tmp_path, "wild", CONFIG)
    with pytest.raises(Killed):
        finish(run, Dying(FIRST, 7))
    finish(run)
    assert read_json(run.stack(0) / "training.json")["values"]["gradient_spikes"] == [9.0]
    assert read_log(run.stack(0) / "log.jsonl")[1]["gradient_spikes"] == [4]


def test_a_checkpoint_of_an_older_version_is_passed_over(
    tmp_path: Path, whole: Run, capsys: pytest.CaptureFixture[str]
):
    run, full = create(tmp_path, "older", CONFIG), ModelState.tensors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ModelState, "tensors", lambda self: {n: t for n, t in full(self).items() if n != "gradient_spikes"}
        )
        with pytest.raises(Killed):
            finish(run, Dying(FIRST, 5))
    finish(run)
    assert "is of an older version: it has no 'gradient_spikes'" in capsys.readouterr().err
    assert results(run, *KEPT) == results(whole, *KEPT)


def test_a_text_that_has_changed_is_another_stage(tmp_path: Path):
    """What was begun on the old text is not gone on with: the models are those of the new text alone."""
    text = tmp_path / "a.txt"
    text.write_text("the cat sat on the mat\n" * 100)
    own = CONFIG.replace("characters = 5000\nvalidation = 400", f'text = "{text}"')
    run = create(tmp_path / "changed", "run", own)
    with pytest.raises(Killed):
        finish(run, Dying(FIRST, 5))
    text.write_text("the dog sat on the mat\n" * 100)
    finish(run)
    fresh = run_config(tmp_path / "fresh", "run", own)
    assert results(run, *KEPT) == results(fresh, *KEPT)


def test_models_are_read_back_as_they_were_trained(whole: Run):
    models = load_models(whole.path, 1)
    world = expand(whole.config(), "c").first.world
    assert models.seeds == (1,)
    assert held_out_loss(models, world) == pytest.approx(read_json(whole.stack(1) / "scores.json")["values"]["loss"][0])


def test_more_words_are_more_work(whole: Run):
    more = {**whole.config(), "world": {"kind": "text", "context": 12}}
    plans = [expand(data, "c") for data in (whole.config(), more)]
    seconds = [plan.first.stages(plan.stacks[0])[0].seconds_per_step for plan in plans]
    words = [len(plan.first.world.vocabulary) for plan in plans]
    assert words[1] > words[0]
    assert seconds[1] > seconds[0]


GAUGE = (
    CONFIG.replace(
        "[model]\nd_model = 8\nheads = 2\nlayers = 2\nd_ff = 8",
        '[model]\nkind = "gauge"\nirreps = "1x0e + 1x1e"\nkappa = 0.01',
    )
    .replace("[cases.none]\n[cases.orthogonality.constraints.orthogonality]\nweight = 0.1\n", "")
    .replace("[sweep]", '[sweep]\n"model.transport" = ["frames", "identity"]')
)


@pytest.fixture(scope="module")
def beliefs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Gauge models, two seeds of each setting in one stack."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models_kind, "SMALL_STEP", math.inf)
        return run_config(tmp_path_factory.mktemp("gauge"), "beliefs", GAUGE)


def test_the_log_has_the_diversity_of_every_member_at_every_line(beliefs: Run):
    """The last line is what the trained models have; the first is of other weights."""
    world = expand(beliefs.config(), "c").first.world
    for index in range(len(beliefs.stacks())):
        lines, models = read_log(beliefs.stack(index) / "log.jsonl"), load_models(beliefs.path, index)
        assert [line["step"] for line in lines] == [2, 4, 6, 8, 9]
        assert models.members == 2
        for member in range(2):
            last = track(models.member(member), first_windows(world, 1))
            assert {"mean_distance", "mean_distance_l1", "frame_deviation", "kl_std", "variance_mean"} <= last.keys()
            assert {name: lines[-1][name][member] for name in last} == pytest.approx(last, rel=1e-5)
        for name in ("mean_distance", "kl_std", "sharpness"):
            assert lines[0][name] != lines[-1][name]


def test_of_other_models_the_log_has_none(whole: Run):
    assert not {"kl_std", "mean_distance"} & read_log(whole.stack(0) / "log.jsonl")[0].keys()


def test_diversity_goes_on_to_the_same_bits(beliefs: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models_kind, "SMALL_STEP", math.inf)
    run = create(tmp_path, "victim", GAUGE)
    plan = expand(run.config(), "c")
    name = plan.first.stages(plan.stacks[0])[0].name
    with pytest.raises(Killed):
        finish(run, Dying(name, 5))
    assert results(finish(run), *KEPT) == results(beliefs, *KEPT)


def test_scores_of_gauge_models_are_beside_those_of_the_start_and_of_the_text(beliefs: Run):
    for setting in beliefs.scores()["settings"]:
        metrics = setting["metrics"]
        for name in ("sharpness", "mean_distance", "mean_deviation"):
            for kind in ("", "_l0", "_l1"):
                assert {f"{name}{kind}", f"untrained_{name}{kind}"} <= metrics.keys()
        assert {"text_sharpness_l1", "smallest_sharp_text", "smallest_sharp_measured"} <= metrics.keys()
        assert metrics["tensor_share"]["value"] == 0
        turned = setting["setting"]["model.transport"] == "frames"
        assert (metrics["transport_effect_l1"]["value"] > 0) == turned
