"""Whole lines: a model is taught once, every stage is kept and shared, and what changes re-runs what depends on it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from unbraid.sweeps import line
from unbraid.sweeps.dictionary_work import DictionaryWork
from unbraid.sweeps.execute import works
from unbraid.sweeps.model_work import ModelWork
from unbraid.sweeps.plan import plan, refuse_too_large

from tests.killing import make
from unbraid.config import check
from unbraid.dictionaries import Stack
from unbraid.errors import UserError
from unbraid.pipeline.executors import execute
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import Experiment, Member
from unbraid.pipeline.trained import load_models, load_stack
from unbraid.progress import Silent
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
steps = 6
batch = 8
[examining]
stories = 20
heads = 10
[capture]
stories = 200
[dictionary]
d_sae = 12
[training]
steps = 8
batch = 32
[data]
samples = 64
[scoring]
samples = 300
[saving]
log_every = 2
checkpoint_every = 4
[cases.l1.mechanisms.sparsity]
weight = 0.1
[cases.topk.dictionary.activation]
kind = "topk"
k = 3
[cases.kmeans.baseline]
kind = "kmeans"
n_components = 6
[sweep]
"capture.seed" = [0, 1]
"""
KEPT = ("weights.safetensors", "scores.json", "tables.safetensors", "factors.safetensors", "features.json")


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """What was taught and trained, in order."""
    found: list[str] = []
    for kind, name in ((ModelWork, "model"), (DictionaryWork, "dictionary")):
        train = kind.train

        def told(self, train=train, name=name):
            found.append(name)
            return train(self)

        monkeypatch.setattr(kind, "train", told)
    return found


def walk(parent: Path, name: str, text: str = CONFIG) -> Run:
    run = make(parent, name, text)
    execute(run, Silent())
    return run


def results(run: Run) -> dict[str, bytes]:
    return {f"{folder.name}/{name}": (folder / name).read_bytes() for folder in run.stacks() for name in KEPT}


def test_a_line_teaches_each_model_once_and_scores_what_learned_from_it(tmp_path, done):
    run = walk(tmp_path, "first")
    assert done == ["model", "model", *["dictionary"] * 4]
    settings = run.scores()["settings"]
    assert [one["label"] for one in settings] == ["l1", "topk", "kmeans"]
    for one in settings:
        assert [member["replicate"] for member in one["members"]] == ["0/0/0", "0/1/0"]
        for name in ("accuracy", "recovery", "recovery_person", "dci_disentanglement", "factors_missed", "probe"):
            assert len(one["metrics"][name]["members"]) == 2
        assert one["metrics"]["recovery"]["ceiling"] > 0
        assert one["metrics"]["accuracy"]["chance"] > 0
    model = Run.open(next((tmp_path / "stages").glob("model-*")))
    assert model.status()["state"] == "finished"
    assert load_models(model.path).members == 1
    assert load_stack(run.path, 0).features == 12


def test_the_same_line_again_does_nothing_and_ends_with_the_same_bits(tmp_path, done):
    first = walk(tmp_path, "first")
    done.clear()
    assert results(walk(tmp_path, "second")) == results(first)
    assert done == []


def test_stages_make_no_difference_to_what_is_found(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert results(walk(tmp_path / "a", "one")) == results(walk(tmp_path / "b", "other"))


def test_a_changed_mechanism_trains_only_what_has_it(tmp_path, done):
    walk(tmp_path, "first")
    done.clear()
    walk(tmp_path, "second", CONFIG.replace("weight = 0.1", "weight = 0.2"))
    assert done == ["dictionary"] * 2


def test_a_changed_site_records_and_trains_again_and_teaches_nothing(tmp_path, done):
    walk(tmp_path, "first")
    done.clear()
    walk(tmp_path, "second", CONFIG.replace("[capture]", '[capture]\nsite = "blocks.1.hook_resid_post"'))
    assert done == ["dictionary"] * 4
    assert len(list((tmp_path / "stages").glob("activations-*"))) == 4


def test_a_changed_model_teaches_again(tmp_path, done):
    walk(tmp_path, "first")
    done.clear()
    walk(tmp_path, "second", CONFIG.replace("d_ff = 8", "d_ff = 10"))
    assert done == ["model", "model", *["dictionary"] * 4]


def test_what_is_only_said_or_saved_changes_no_stage(tmp_path, done):
    walk(tmp_path, "first")
    done.clear()
    walk(tmp_path, "second", 'title = "another"\n' + CONFIG.replace("log_every = 2", "log_every = 3"))
    assert done == []


def test_many_dictionaries_learn_from_one_model(tmp_path, done):
    text = CONFIG.replace('"capture.seed" = [0, 1]', 'seed = [0, 1, 2]\n"training.learning_rate" = [1e-3, 1e-2]')
    run = walk(tmp_path, "first", text)
    assert done == ["model", "dictionary", "dictionary"]
    assert len(list((tmp_path / "stages").glob("activations-*"))) == 1
    assert len(read_json(run.stack(0) / "members.json")) == 6


def test_a_line_that_was_stopped_goes_on(tmp_path, monkeypatch, done):
    whole = walk(tmp_path, "whole", CONFIG)
    (tmp_path / "other").mkdir()
    run, score = make(tmp_path / "other", "stopped", CONFIG), DictionaryWork.score
    done.clear()

    def stop(self):
        if self.index == 1:
            raise KeyboardInterrupt
        score(self)

    monkeypatch.setattr(DictionaryWork, "score", stop)
    with pytest.raises(KeyboardInterrupt):
        execute(run, Silent())
    monkeypatch.setattr(DictionaryWork, "score", score)
    execute(run, Silent())
    assert results(run) == results(whole)
    assert done.count("model") == 2


def test_side_by_side_they_end_with_the_same_bits(tmp_path, monkeypatch):
    whole = walk(tmp_path, "whole")
    (tmp_path / "crew").mkdir()
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    assert results(walk(tmp_path / "crew", "crew")) == results(whole)


def test_the_work_has_the_models_in_it(tmp_path):
    run = make(tmp_path, "planned", CONFIG)
    steps = [steps for steps, _ in works(run.config(), "planned")]
    assert steps == [6, 6, 8, 8, 8, 8, 1, 1]


def test_what_is_read_back_takes_and_gives_activations_as_the_model_has_them(tmp_path):
    """Its normalization is folded in."""
    run = walk(tmp_path, "first")
    base = {key: value for key, value in run.config().items() if key not in ("cases", "sweep")}
    world = line.world_of(run, check(Experiment, base, "base"))
    told, stack = world.labelled_rows(100), load_stack(run.path, 0)
    kept = read_arrays(run.stack(0) / "weights.safetensors")
    trained = Stack.of({name: torch.from_numpy(array) for name, array in kept.items()}, stack.activation)
    expected = world.normalization.undo(trained.decode(trained.encode(told.x)))
    found = stack.decode(stack.encode(world.normalization.undo(told.x)))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_cases_are_compared_where_all_else_is_alike(tmp_path):
    text = CONFIG.replace("[sweep]", '[sweep]\n"dictionary.d_sae" = [10, 12]')
    text = text.replace('[cases.kmeans.baseline]\nkind = "kmeans"\nn_components = 6\n', "")
    scores = walk(tmp_path, "first", text).scores()
    labels = [one["label"] for one in scores["settings"]]
    assert labels == ["l1, features 10", "l1, features 12", "topk, features 10", "topk, features 12"]
    compared = {(labels[one["setting"]], labels[one["reference"]]) for one in scores["differences"]}
    assert compared == {("topk, features 10", "l1, features 10"), ("topk, features 12", "l1, features 12")}
    metrics = {one["metric"] for one in scores["differences"]}
    assert {"accuracy", "recovery"} <= metrics
    assert "separation" not in metrics, "it is the same model's"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"capture": {"site": "blocks.7.hook_resid_post"}}, "capture.site is 'blocks.7.hook_resid_post'"),
        ({"capture": {"site": "blocks.0.attn.hook_pattern"}}, "which the model has not"),
        ({"world": {"kind": "superposition"}}, "capture was given, and world.kind is 'superposition'"),
        ({"tracking": {"checks": 2}}, "tracking was given, and with capture it cannot be"),
        ({"capture": {"storys": 3}}, "did you mean 'stories'"),
        ({"capture": {"stories": 3}}, "capture.stories"),
        ({"scoring": {"samples": 20}}, "scoring.samples is 20, too few tokens to tell concepts by"),
        (
            {
                "model": {"kind": "transformer", "attention": {"kind": "hopfield"}},
                "capture": {"site": "blocks.0.attn.hook_memory"},
            },
            "which the model has not",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes, sentence):
    asked = {"world": {"kind": "stories"}, "capture": {}, **changes}
    with pytest.raises(UserError, match=sentence.replace(".", r"\.")):
        check(Experiment, asked, "line.toml")


def test_cases_are_lines_all_of_them_or_none(tmp_path):
    text = '[world]\nkind = "stories"\n[cases.line.capture]\nstories = 200\n[cases.model]\n'
    with pytest.raises(UserError, match="some cases have capture and others none"):
        make(tmp_path, "mixed", text)


def test_a_model_that_does_not_fit_is_refused_before_its_width_is_asked_for(tmp_path):
    large = {"d_model": 1 << 14, "layers": 1024, "d_ff": 1 << 16}
    asked = {"world": {"kind": "stories"}, "capture": {}, "model": large}
    with pytest.raises(UserError, match="fewer layers, a smaller d_model"):
        refuse_too_large([Member(check(Experiment, asked, "large"), {})])


def test_one_model_counts_once_however_many_dictionaries_learned_from_it(tmp_path):
    """Of two models with three dictionaries each: two replicates of accuracy, and of what differs between models."""
    text = CONFIG.replace('"capture.seed" = [0, 1]', 'seed = [0, 1, 2]\n"capture.seed" = [0, 1]')
    text = text.replace(
        '[cases.kmeans.baseline]\nkind = "kmeans"\nn_components = 6\n', "[cases.wide.model]\nd_ff = 10\n"
    )
    scores = walk(tmp_path, "first", text).scores()
    labels = [one["label"] for one in scores["settings"]]
    pairs = {(labels[one["setting"]], one["metric"]): one for one in scores["differences"]}
    assert pairs["wide", "accuracy"]["pairs"] == pairs["wide", "recovery"]["pairs"] == 2
    assert pairs["topk", "recovery"]["pairs"] == 6
    wide, plain = (scores["settings"][labels.index(name)]["metrics"]["recovery"]["members"] for name in ("wide", "l1"))
    expected = np.mean(wide) - np.mean(plain)
    assert pairs["wide", "recovery"]["value"] == pytest.approx(expected)
    own = scores["settings"][0]["metrics"]
    assert len(own["accuracy"]["members"]) == len(own["recovery"]["members"]) == 6


def test_what_is_kept_appears_whole_and_a_log_is_not_shared(tmp_path):
    run = walk(tmp_path, "first")
    kept = [path for path in (tmp_path / "stages").glob("dictionary-*") if (path / "log.jsonl").is_file()]
    assert kept
    assert not list((tmp_path / "stages").glob(".*.part"))
    for folder in run.stacks()[:1]:
        same = [path for path in kept if (path / "scores.json").samefile(folder / "scores.json")]
        assert same, "files are shared"
        assert not (same[0] / "log.jsonl").samefile(folder / "log.jsonl")


def test_a_baseline_is_one_stack_whatever_the_dictionary_beside_it(tmp_path):
    text = CONFIG.replace("[sweep]", '[sweep]\n"dictionary.d_sae" = [10, 12]')
    run = make(tmp_path, "planned", text)
    stacks = plan(expand(run.config(), "planned"))
    fitted = [len(group) for group in stacks if group[0].experiment.baseline is not None]
    assert fitted == [2, 2], "of either model, both sizes of the dictionary it is not"


def test_another_normalization_trains_again_on_the_same_recording(tmp_path, done):
    walk(tmp_path, "first")
    done.clear()
    walk(tmp_path, "second", CONFIG.replace("[capture]", '[capture]\nnormalize = "none"'))
    assert done == ["dictionary"] * 4
    assert len(list((tmp_path / "stages").glob("activations-*"))) == 2
