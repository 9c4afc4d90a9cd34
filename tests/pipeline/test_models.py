"""Runs of models: what they leave, how they go on after any stop, what they refuse."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.pipeline.running import Dying, Killed, create, finish, results, run_config
from unbraid.errors import NotFinite, UserError
from unbraid.pipeline.expand import expand
from unbraid.pipeline.kinds import models as models_kind
from unbraid.pipeline.trained import load_models, load_stack
from unbraid.storage.checkpoints import read_log
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

CONFIG = """
kind = "models"
[world]
kind = "stories"
people = 2
places = 3
rounds = 2
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
stories = 40
heads = 24
shown = 1
[checkpoints]
log_every = 2
every = 3
[cases.none]
[cases.orthogonality.constraints.orthogonality]
weight = 0.1
[sweep]
seed = [0, 1]
"""
KEPT = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors", "members.json", "stories.json")


@pytest.fixture(scope="module", autouse=True)
def one_thread_one_by_one() -> Iterator[None]:
    """With several threads several processes work, and which step a death falls on is not known, nor in one stack."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models_kind, "SMALL_STEP", 0)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(tmp_path_factory.mktemp("models"), "whole", CONFIG)


def test_a_run_of_models_leaves_scores_with_chance_and_differences(whole: Run):
    scores = whole.scores()
    assert [setting["label"] for setting in scores["settings"]] == ["none", "orthogonality"]
    metrics = scores["settings"][0]["metrics"]
    assert {
        "accuracy",
        "support_best",
        "support_mass",
        "attention_entropy",
        "separation",
        "head_cka",
        "seconds",
    } <= metrics.keys()
    assert metrics["accuracy"]["ceiling"] == 1
    assert len(metrics["accuracy"]["members"]) == 2
    world = expand(whole.config(), "c").first.world
    assert metrics["accuracy"]["chance"] == pytest.approx(world.shortcuts()["chance"])
    assert {entry["metric"] for entry in scores["differences"]} >= {"accuracy", "support_best", "head_cosine"}
    assert all(entry["pairs"] == 2 for entry in scores["differences"])


def test_parameters_are_those_of_the_weights(whole: Run):
    weights = read_arrays(whole.stack(0) / "weights.safetensors")
    assert read_json(whole.stack(0) / "scores.json")["values"]["parameters"] == [
        sum(w[0].size for w in weights.values())
    ]


def test_the_log_has_costs_and_accuracy_and_steps_to_95_follow_from_it(whole: Run):
    lines = read_log(whole.stack(2) / "log.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 9]
    assert set(lines[0]["terms"]) == {"answers", "orthogonality"}
    reached = [line["step"] for line in lines if line["accuracy"][0] >= 0.95]
    values = read_json(whole.stack(2) / "scores.json")["values"]
    assert values["steps_to_95"][0] == (reached[0] if reached else None)
    assert values["capped_steps_to_95"][0] == (reached[0] if reached else 9)
    assert values["reached_95"][0] == float(bool(reached))


def test_separation_before_training_is_its_chance(whole: Run):
    scores = read_json(whole.stack(2) / "scores.json")
    assert scores["values"]["untrained_separation"] == scores["chance"]["separation"]
    assert scores["values"]["untrained_separation"] != scores["values"]["separation"]


def test_patterns_are_kept_of_the_first_of_each_setting(whole: Run):
    """Each stack is one member; those of a second seed are kept too, since each stack knows itself alone."""
    tables, card = read_arrays(whole.stack(0) / "tables.safetensors"), read_json(whole.stack(0) / "stories.json")
    words = card["members"]["0"][0]["words"]
    patterns = tables["pattern.0"]
    assert patterns.shape == (1, 2, 2, len(words), len(words))
    np.testing.assert_allclose(patterns.astype(float).sum(-1), 1, atol=2e-3)
    assert card["shortcuts"]["chance"] > 0
    assert tables["explained"].shape[-1] == len(card["factors"])


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("none · seed 0/0 · training", 1),
        ("none · seed 0/0 · training", 3),
        ("none · seed 0/1 · training", 5),
        ("orthogonality · seed 0/1 · training", 9),
        ("orthogonality · seed 0/0 · evaluation", 1),
    ],
)
def test_killed_and_resumed_it_ends_with_the_same_bits(whole: Run, tmp_path: Path, name: str, step: int):
    run = create(tmp_path, "victim", CONFIG)
    with pytest.raises(Killed):
        finish(run, Dying(name, step))
    assert results(finish(run), *KEPT) == results(whole, *KEPT)


def test_seconds_go_on_after_a_stop(tmp_path: Path):
    run = create(tmp_path, "stopped", CONFIG)
    with pytest.raises(Killed):
        finish(run, Dying("none · seed 0/0 · training", 7))
    before = read_json(max(run.cache.glob("*/checkpoints/*.json")))["facts"]["seconds"]
    finish(run)
    assert read_json(run.stack(0) / "training.json")["values"]["seconds"][0] > before > 0


def test_dropout_and_fixed_examples_resume_to_the_same_bits_too(tmp_path: Path):
    text = CONFIG.replace('kind = "stories"', 'kind = "stories"\nlayout = "single"\nexamples = 20').replace(
        "layers = 2", 'layers = 1\ndropout = 0.2\nreadout = "mean"\ncausal = false'
    )
    text = text.replace("[cases.none]\n[cases.orthogonality.constraints.orthogonality]\nweight = 0.1\n", "")
    never = run_config(tmp_path / "never", "run", text)
    once = create(tmp_path / "once", "run", text)
    with pytest.raises(Killed):
        finish(once, Dying("the one setting · seed 0/1 · training", 5))
    finish(once)
    assert len(never.stacks()) == 2
    assert results(never, *KEPT) == results(once, *KEPT)


def test_trained_together_they_end_as_alone(whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models_kind, "SMALL_STEP", 1 << 16)
    run = run_config(tmp_path, "together", CONFIG)
    assert len(run.stacks()) == 2
    for ours, alone in zip(run.scores()["settings"], whole.scores()["settings"], strict=True):
        for metric in ("accuracy", "support_best", "attention_entropy"):
            expected = alone["metrics"][metric]["members"]
            assert ours["metrics"][metric]["members"] == pytest.approx(expected, rel=1e-4), metric


@pytest.mark.filterwarnings("ignore")
def test_a_loss_that_is_not_finite_stops_with_advice(tmp_path: Path):
    text = CONFIG.replace("learning_rate = 1e-2", "learning_rate = 1e38\nclip = 1e30")
    run = create(tmp_path, "wild", text)
    advice = r"not finite at step .*\(none · seed 0/0\); .*look at model\.training\.learning_rate"
    with pytest.raises(NotFinite, match=advice):
        finish(run)
    assert run.status()["state"] == "failed"


def test_a_run_of_models_holds_no_dictionary(whole: Run):
    with pytest.raises(UserError, match="holds no trained dictionaries in stack 0"):
        load_stack(whole.path)


def test_models_are_read_back_as_they_were_trained(whole: Run):
    models = load_models(whole.path, 3)
    world = expand(whole.config(), "c").first.world
    assert models.seeds == (1,)
    batch = world.batch(0, 1, split="evaluation")
    said = models.read(models.forward(batch.tokens), batch.asked)[0, 0].argmax(-1)
    card = read_json(whole.stack(3) / "stories.json")["members"]["0"][0]
    assert [world.answers[answer] for answer in said] == card["said"]
    with pytest.raises(UserError, match="holds no models in stack 9"):
        load_models(whole.path, 9)


def test_a_wider_model_is_more_work():
    """Eight times the width is 64 times the weights: most of a step, but for what every step costs."""
    small, large = (
        expand({"kind": "models", "model": {"d_model": width, "d_ff": width, "heads": 2}}, "here")
        for width in (16, 128)
    )
    seconds = [plan.first.stages(plan.stacks[0])[0].seconds_per_step for plan in (small, large)]
    assert seconds[1] > 8 * seconds[0]
