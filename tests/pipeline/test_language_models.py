"""Runs of language models: what they leave, how they go on after any stop, what they refuse."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from unbraid.sweeps.execute import works

from tests.sweeps.test_model_work import Dying, Killed, make, one_thread_one_by_one  # noqa: F401 (a fixture)
from unbraid import cli
from unbraid.errors import UserError
from unbraid.evaluation.text_models import held_out_loss, ngram_baselines
from unbraid.models.training import ModelState
from unbraid.pipeline.executors import execute
from unbraid.pipeline.expand import expand
from unbraid.pipeline.trained import load_models
from unbraid.progress import Silent
from unbraid.reports.findings import read_findings
from unbraid.storage.checkpoints import read_log
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

CONFIG = """
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
[teaching]
steps = 9
batch = 8
learning_rate = 1e-2
[examining]
heads = 4
shown = 2
[saving]
log_every = 2
checkpoint_every = 3
[cases.none]
[cases.orthogonality.constraints.orthogonality]
weight = 0.1
[sweep]
seed = [0, 1]
"""
KEPT = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors", "members.json", "texts.json")


def results(run: Run) -> dict[str, bytes]:
    return {f"{folder.name}/{name}": (folder / name).read_bytes() for folder in run.stacks() for name in KEPT}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make(tmp_path_factory.mktemp("language"), "whole", CONFIG)
    execute(run, Silent())
    return run


def test_a_run_leaves_scores_with_chance_and_differences(whole: Run):
    scores = whole.scores()
    metrics = scores["settings"][0]["metrics"]
    world = expand(whole.config(), "c")[0].experiment.asking
    for metric, floor in ngram_baselines(world)["unigram"].items():
        assert metrics[metric]["chance"] == pytest.approx(floor)
        assert len(metrics[metric]["members"]) == 2
    assert metrics["perplexity"]["members"][0] == pytest.approx(math.exp(metrics["loss"]["members"][0]))
    assert {"explosions", "parameters", "seconds"} <= metrics.keys()
    assert not {"accuracy", "steps_to_95"} & metrics.keys()
    assert {one["metric"] for one in scores["differences"]} >= {"loss", "perplexity", "bits_per_character"}


def test_the_log_tells_loss_perplexity_and_gradients(whole: Run):
    lines = read_log(whole.stack(2) / "log.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 9]
    assert set(lines[0]["terms"]) == {"answers", "orthogonality"}
    assert lines[0]["loss"] == lines[0]["terms"]["answers"]
    assert lines[0]["perplexity"] == pytest.approx([math.exp(lines[0]["loss"][0])])
    assert lines[0]["length"][0] > 0
    assert "accuracy" in lines[0]


def test_texts_tell_windows_heads_pairs_and_how_models_write(whole: Run):
    card, tables = read_json(whole.stack(0) / "texts.json"), read_arrays(whole.stack(0) / "tables.safetensors")
    world = expand(whole.config(), "c")[0].experiment.asking
    assert [len(one["words"]) for one in card["members"]["0"]] == [12, 12]
    assert card["heads"] == ["softmax", "softmax"]
    assert (card["irreps"], card["context"], card["characters_per_token"]) == ("", 12, 1.0)
    assert card["bigram"] == pytest.approx(ngram_baselines(world)["bigram"])
    assert len(world.tokenized.tokenizer.encode(card["samples"]["0"]["text"])) == 120
    assert tables["pattern.0"].shape == (2, 2, 2, 12, 12)
    assert tables["pattern.0"].dtype == np.float32


@pytest.mark.parametrize(("stack", "step"), [(0, 1), (0, 5), (1, 9)])
def test_killed_at_any_step_it_goes_on_to_the_same_bits(stack: int, step: int, whole: Run, tmp_path: Path):
    run = make(tmp_path, "victim", CONFIG)
    with pytest.raises(Killed):
        execute(run, Dying(stack, step))
    execute(run, Silent())
    assert results(run) == results(whole)


def test_the_first_models_heads_are_told_of_every_tenth_line_of_the_log(tmp_path: Path, capsys):
    run = make(tmp_path, "told", CONFIG.replace("steps = 9", "steps = 41"))
    execute(run, Silent())
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("step")] == ["step 20, none", "step 40, none", "step 41, none"]
    assert said[1].startswith("Head 0 (softmax): row_std=0.")
    assert said[1].endswith("(uniform: 0.0674)")  # of 12 tokens
    assert len(said) == 3 * (1 + 2)


def test_explosions_are_counted_through_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("unbraid.models.training.GRADIENT_SPIKE", 0.0)
    run = make(tmp_path, "wild", CONFIG)
    with pytest.raises(Killed):
        execute(run, Dying(0, 7))
    execute(run, Silent())
    assert read_json(run.stack(0) / "scores.json")["values"]["explosions"] == [9.0]
    assert read_log(run.stack(0) / "log.jsonl")[1]["explosions"] == [4]


def test_a_checkpoint_of_an_older_version_is_passed_over(
    tmp_path: Path, whole: Run, capsys: pytest.CaptureFixture[str]
):
    run, full = make(tmp_path, "older", CONFIG), ModelState.tensors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ModelState, "tensors", lambda self: {n: t for n, t in full(self).items() if n != "gradient_spikes"}
        )
        with pytest.raises(Killed):
            execute(run, Dying(0, 5))
    execute(run, Silent())
    assert "is of an older version: it has no 'gradient_spikes'" in capsys.readouterr().err
    assert results(run) == results(whole)


def test_a_text_that_has_changed_is_refused(tmp_path: Path):
    text = tmp_path / "a.txt"
    text.write_text("the cat sat on the mat\n" * 100)
    own = CONFIG.replace("characters = 5000\nvalidation = 400", f'text = "{text}"')
    run = make(tmp_path, "changed", own)
    with pytest.raises(Killed):
        execute(run, Dying(0, 5))
    text.write_text("the dog sat on the mat\n" * 100)
    with pytest.raises(UserError, match=r"is not the one that .* was begun with; accepted: that text, or a new run"):
        execute(run, Silent())


def test_models_are_read_back_as_they_were_taught(whole: Run):
    models = load_models(whole.path, 1)
    world = expand(whole.config(), "c")[0].experiment.asking
    assert models.seeds == (1,)
    assert held_out_loss(models, world) == pytest.approx(read_json(whole.stack(1) / "scores.json")["values"]["loss"][0])


def test_more_words_are_more_work(whole: Run, tmp_path: Path):
    fewer = works(whole.config(), "c")
    more = works(make(tmp_path, "more", CONFIG.replace("characters = 5000\n", "")).config(), "c")
    assert more[0][1] > fewer[0][1]


def test_the_lowest_perplexity_is_the_best(whole: Run):
    findings = read_findings(whole)
    values = [setting.value("perplexity") for setting in findings.ranked()]
    assert findings.leading == "perplexity"
    assert values == sorted(values)


def test_the_command_line_shows_lists_and_reports_it(whole: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def said(*words: object) -> str:
        assert cli.guarded(lambda: cli.app([str(word) for word in words])) == 0
        return capsys.readouterr().out

    assert "Perplexity" in said("list", "--runs", whole.path.parent)
    shown = " ".join(said("show", whole.path).split())
    assert "4 language models (2 settings × 2 replicates) (transformer) of 2 layers" in shown
    assert "Bits per character" in shown
    assert math.isfinite(json.loads(said("show", whole.path, "--json"))["settings"][0]["metrics"]["loss"]["value"])
    said("report", whole.path, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    pairs = read_json(whole.stack(0) / "texts.json")["bigram"]["perplexity"]
    assert f"counting pairs gives {pairs:#.4g}" in page
    assert "How the models write" in page
    assert "dictionar" not in page.split("<footer>")[0].replace("of dictionaries all costs", "")
