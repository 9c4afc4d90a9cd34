"""Runs of models: what they leave, how they go on after any stop, what they refuse."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from unbraid.sweeps import plan as planning
from unbraid.sweeps.execute import works
from unbraid.sweeps.grid import resolve

from unbraid import cli
from unbraid.config import read_toml, to_toml
from unbraid.errors import NotFinite, UserError
from unbraid.pipeline.executors import execute
from unbraid.pipeline.expand import expand
from unbraid.pipeline.trained import load_models, load_stack
from unbraid.progress import Silent
from unbraid.storage.checkpoints import read_log
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

CONFIG = """
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
[teaching]
steps = 9
batch = 8
learning_rate = 1e-2
[examining]
stories = 40
heads = 24
shown = 1
[saving]
log_every = 2
checkpoint_every = 3
[cases.none]
[cases.orthogonality.constraints.orthogonality]
weight = 0.1
[sweep]
seed = [0, 1]
"""
KEPT = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors", "members.json", "stories.json")


def make(parent: Path, name: str, text: str = CONFIG) -> Run:
    (parent / f"{name}.toml").write_text(text)
    return Run.create(parent, name, to_toml(resolve(read_toml(parent / f"{name}.toml"), name)))


def results(run: Run) -> dict[str, bytes]:
    return {f"{folder.name}/{name}": (folder / name).read_bytes() for folder in run.stacks() for name in KEPT}


@pytest.fixture(scope="module", autouse=True)
def one_thread_one_by_one() -> Iterator[None]:
    """With several threads several processes work, and which step a death falls on is not known, nor in one stack."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "SMALL_STEP", 0)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make(tmp_path_factory.mktemp("models"), "whole")
    execute(run, Silent())
    return run


def test_a_run_of_models_leaves_scores_with_chance_and_differences(whole: Run):
    scores = whole.scores()
    assert [setting["label"] for setting in scores["settings"]] == ["none", "orthogonality"]
    metrics = scores["settings"][0]["metrics"]
    assert {"accuracy", "support_best", "support_mass", "spread", "separation", "head_cka", "seconds"} <= metrics.keys()
    assert metrics["accuracy"]["ceiling"] == 1
    assert len(metrics["accuracy"]["members"]) == 2
    world = expand(whole.config(), "c")[0].experiment.asking
    assert metrics["accuracy"]["chance"] == pytest.approx(world.shortcuts()["chance"])
    assert {one["metric"] for one in scores["differences"]} >= {"accuracy", "support_best", "head_cosine"}
    assert all(one["pairs"] == 2 for one in scores["differences"])


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
    found = read_json(whole.stack(2) / "scores.json")["values"]["steps_to_95"][0]
    assert found == (reached[0] if reached else None)


def test_patterns_are_kept_of_the_first_of_each_setting(whole: Run):
    """Each stack is one member; those of a second seed are kept too, since each stack knows itself alone."""
    tables, card = read_arrays(whole.stack(0) / "tables.safetensors"), read_json(whole.stack(0) / "stories.json")
    words = card["members"]["0"][0]["words"]
    patterns = tables["pattern.0"]
    assert patterns.shape == (1, 2, 2, len(words), len(words))
    np.testing.assert_allclose(patterns.astype(float).sum(-1), 1, atol=2e-3)
    assert card["shortcuts"]["chance"] > 0
    assert tables["explained"].shape[-1] == len(card["factors"])


class Killed(Exception):
    pass


class Dying(Silent):
    """Ends the run at a step of a stack, as a kill between two steps would."""

    def __init__(self, stack: int, step: int) -> None:
        super().__init__()
        self.at = (stack, step)

    def advance(self, stack: int, step: int) -> None:
        super().advance(stack, step)
        if (stack, step) == self.at:
            raise Killed


@pytest.mark.parametrize("moment", [(0, 1), (0, 3), (1, 5), (3, 9)], ids=str)
def test_killed_and_resumed_it_ends_with_the_same_bits(whole: Run, tmp_path: Path, moment: tuple[int, int]):
    run = make(tmp_path, "victim")
    with pytest.raises(Killed):
        execute(run, Dying(*moment))
    execute(run, Silent())
    assert results(run) == results(whole)


def test_seconds_go_on_after_a_stop(tmp_path: Path):
    run = make(tmp_path, "stopped")
    with pytest.raises(Killed):
        execute(run, Dying(0, 7))
    card = max((run.stack(0) / "checkpoints").glob("*.json"))
    before = read_json(card)["facts"]["seconds"]
    execute(run, Silent())
    assert read_json(run.stack(0) / "timing.json")["values"]["seconds"][0] > before > 0


def test_dropout_and_fixed_examples_resume_to_the_same_bits_too(tmp_path: Path):
    text = CONFIG.replace('kind = "stories"', 'kind = "stories"\nlayout = "single"\nexamples = 20').replace(
        "layers = 2", 'layers = 1\ndropout = 0.2\nreadout = "mean"\ncausal = false'
    )
    text = text.replace("[cases.none]\n[cases.orthogonality.constraints.orthogonality]\nweight = 0.1\n", "")
    runs = [make(tmp_path, name, text) for name in ("never", "once")]
    execute(runs[0], Silent())
    with pytest.raises(Killed):
        execute(runs[1], Dying(1, 5))
    execute(runs[1], Silent())
    assert len(runs[0].stacks()) == 2
    assert results(runs[0]) == results(runs[1])


def test_taught_together_they_end_as_alone(whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planning, "SMALL_STEP", 1 << 16)
    run = make(tmp_path, "together")
    execute(run, Silent())
    assert len(run.stacks()) == 2
    for ours, alone in zip(run.scores()["settings"], whole.scores()["settings"], strict=True):
        for metric in ("accuracy", "support_best", "spread"):
            expected = alone["metrics"][metric]["members"]
            assert ours["metrics"][metric]["members"] == pytest.approx(expected, rel=1e-4), metric


@pytest.mark.filterwarnings("ignore")
def test_a_loss_that_is_not_finite_stops_with_advice(tmp_path: Path):
    run = make(tmp_path, "wild", CONFIG.replace("learning_rate = 1e-2", "learning_rate = 1e38\nclip = 1e30"))
    with pytest.raises(NotFinite, match=r"not finite at step .*'seed': 0.*teaching\.learning_rate"):
        execute(run, Silent())
    assert run.status()["state"] == "failed"


def test_a_run_of_models_holds_no_dictionary(whole: Run):
    with pytest.raises(UserError, match="holds no trained stack"):
        load_stack(whole.path)


def test_models_are_read_back_as_they_were_taught(whole: Run):
    models = load_models(whole.path, 3)
    world = expand(whole.config(), "c")[0].experiment.asking
    assert models.seeds == (1,)
    batch = world.batch(0, 1, split="evaluation")
    said = models.read(models.forward(batch.tokens), batch.asked)[0, 0].argmax(-1)
    card = read_json(whole.stack(3) / "stories.json")["members"]["0"][0]
    assert [world.answers[answer] for answer in said] == card["said"]
    with pytest.raises(UserError, match="holds no models in stack 9"):
        load_models(whole.path, 9)


def test_the_work_planned_is_the_steps_of_every_model(whole: Run):
    planned = works(whole.config(), "c")
    assert [steps for steps, _ in planned] == [9] * 4
    larger = works(resolve({**read_toml(whole.path / "config.toml"), "model": {"d_model": 64}}, "c"), "c")
    assert larger[0][1] > 8 * planned[0][1]


def test_the_command_line_shows_lists_and_reports_it(whole: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def said(*words: object) -> str:
        assert cli.guarded(lambda: cli.app([str(word) for word in words])) == 0
        return capsys.readouterr().out

    assert "Accuracy" in said("list", "--runs", whole.path.parent)
    shown = said("show", whole.path)
    assert "4 models (2 settings × 2 replicates) of 2 layers with 2 heads" in " ".join(shown.split())
    assert "Support, best head" in shown
    described = json.loads(said("show", whole.path, "--json"))
    assert math.isfinite(described["settings"][0]["metrics"]["accuracy"]["value"])
    said("report", whole.path, "-o", tmp_path / "page.html")
    assert "answers" in (tmp_path / "page.html").read_text()
