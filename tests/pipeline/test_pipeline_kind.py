"""Whole pipelines: a model is trained once, stages are shared, and a change makes again only what depends on it."""

import shutil
import tomllib
from collections import Counter
from collections.abc import Container
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.pipeline.running import Dying, Killed, Recorded, create, finish, results, run_config
from unbraid.dictionaries import Stack
from unbraid.pipeline.dictionary_stages import TrainStack
from unbraid.pipeline.expand import expand
from unbraid.pipeline.run import missing_stages
from unbraid.pipeline.stage import Context
from unbraid.pipeline.trained import load_stack
from unbraid.progress import Silent, TaskProgress
from unbraid.signals import StopSignals
from unbraid.storage.cache import Cache
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

CONFIG = """
kind = "pipeline"
[world]
kind = "stories"
people = 2
places = 2
rounds = 2
[model]
d_model = 8
heads = 2
layers = 2
d_ff = 8
[model.training]
steps = 6
batch = 8
[model.evaluation]
stories = 20
heads = 10
[activations]
stories = 200
[dictionary]
d_sae = 8
[training]
steps = 8
batch = 32
[samples]
n = 64
[evaluation]
samples = 200
pairs = 6
[checkpoints]
log_every = 2
every = 4
[cases.l1.mechanisms.sparsity]
weight = 0.1
[cases.topk.dictionary.activation]
kind = "topk"
k = 3
[cases.kmeans.baseline]
kind = "kmeans"
n_components = 4
[sweep]
"model.seed" = [0, 1]
"""
KEPT = (
    *("weights.safetensors", "scores.json", "causal.json"),
    *("tables.safetensors", "factors.safetensors", "features.json"),
)
LEARNING = {"probe": 2, "train-stack": 4, "evaluate-stack": 4, "baseline": 2, "causal-bounds": 2, "causal": 6}
"""What is made again where activations are others."""
KMEANS = '[cases.kmeans.baseline]\nkind = "kmeans"\nn_components = 4\n'
"""The case that a test of dictionaries alone takes out."""


ALL = {"train-models": 2, "evaluate-models": 2, "capture": 2, **LEARNING}
"""All that the pipeline makes."""


@pytest.fixture(scope="module")
def planned() -> Recorded:
    """What the first pipeline was going to make."""
    return Recorded()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, planned: Recorded) -> Run:
    """A pipeline that is done; each test changes a copy of the folder it lies in."""
    return run_config(tmp_path_factory.mktemp("pipeline"), "first", CONFIG, planned)


def made(first: Run, parent: Path, text: str) -> tuple[Run, dict[str, int]]:
    """A second run beside a copy of the first, and how many stages of each kind it made."""
    shutil.copytree(first.path.parent, parent, dirs_exist_ok=True)
    recorded = Recorded()
    run = run_config(parent, "second", text, recorded)
    return run, Counter(recorded.kinds)


def would_make(first: Run, text: str) -> dict[str, int]:
    """The same of a run that is planned beside the first, and not carried out: that takes seconds."""
    return Counter(stage.kind for stage in missing_stages(first, expand(tomllib.loads(text), "planned"), print))


def contents(run: Run) -> dict[str, bytes]:
    """What every stack of a pipeline leaves; a baseline has the same files as a dictionary but for its log."""
    return results(run, *KEPT)


def test_each_model_is_trained_once_and_what_learned_from_it_is_scored(first: Run):
    settings = first.scores()["settings"]
    assert [setting["label"] for setting in settings] == ["l1", "topk", "kmeans"]
    for setting in settings:
        assert [member["replicate"] for member in setting["members"]] == ["0/0/0", "0/1/0"]
        for name in ("accuracy", "phi", "phi_person", "dci_disentanglement", "factors_missed", "probe"):
            assert len(setting["metrics"][name]["members"]) == 2
        assert setting["metrics"]["phi"]["ceiling"] > 0
        assert setting["metrics"]["accuracy"]["chance"] > 0
    assert len(list(first.cache.glob("train-models-*"))) == 2
    assert load_stack(first.path, 0).features == 8


def test_the_stages_of_a_pipeline_come_inputs_first(first: Run, planned: Recorded):
    kinds = planned.kinds
    assert Counter(kinds) == ALL
    steps = [task.steps for task in planned.planned if task.kind in ("train-models", "train-stack")]
    assert sorted(steps) == [6, 6, 8, 8, 8, 8]
    for kind, needed in (("capture", "train-models"), ("train-stack", "capture"), ("evaluate-stack", "probe")):
        assert kinds.index(needed) < kinds.index(kind)


@pytest.mark.slow  # a pipeline that was killed ends with the same bits in another folder, too
def test_the_cache_makes_no_difference_to_the_results(first: Run, tmp_path: Path):
    assert contents(run_config(tmp_path, "other", CONFIG)) == contents(first)


def test_the_same_pipeline_again_makes_no_stage_and_ends_with_the_same_bits(first: Run, tmp_path: Path):
    run, kinds = made(first, tmp_path, CONFIG)
    assert kinds == {}
    assert contents(run) == contents(first)


def test_a_changed_mechanism_trains_only_what_has_it(first: Run, tmp_path: Path):
    text = CONFIG.replace("weight = 0.1", "weight = 0.2")
    _, kinds = made(first, tmp_path, text)
    assert kinds == would_make(first, text) == {"train-stack": 2, "evaluate-stack": 2, "causal": 2}


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        pytest.param("d_ff = 8", "d_ff = 10", ALL, id="the model: everything"),
        pytest.param("heads = 10", "heads = 12", {"evaluate-models": 2}, id="its evaluation: only that"),
        pytest.param(
            "[activations]",
            '[activations]\nsite = "blocks.1.hook_resid_post"',
            {"capture": 2, **LEARNING},
            id="the site: no model is trained",
        ),
        pytest.param("[activations]", '[activations]\nnormalize = "none"', LEARNING, id="normalization: same capture"),
        pytest.param("pairs = 6", "pairs = 8", {"causal-bounds": 2, "causal": 6}, id="pairs of stories: edits alone"),
    ],
)
def test_a_change_makes_again_only_what_depends_on_it(first: Run, old: str, new: str, kinds: dict[str, int]):
    assert would_make(first, CONFIG.replace(old, new)) == kinds


def test_without_pairs_no_model_is_edited_and_the_other_scores_are_the_same(first: Run, tmp_path: Path):
    run, kinds = made(first, tmp_path, CONFIG.replace("pairs = 6", "pairs = 0"))
    assert kinds == {}
    assert not list(run.path.rglob("causal.json"))
    kept = [name for name in KEPT if name != "causal.json"]
    assert results(run, *kept) == results(first, *kept)


def test_a_model_that_answers_nothing_right_has_no_causal_scores(first: Run):
    """So few of its answers are right in both stories of a pair that no factor is judged."""
    card = read_json(first.stack(0) / "causal.json")
    assert card["values"]["causal"] == [None]
    assert card["values"]["spliced_accuracy"][0] is not None
    assert "causal" not in first.scores()["settings"][0]["metrics"]


def test_causal_scores_are_written_for_every_factor_with_chance_and_ceiling(tmp_path: Path):
    """A model that is trained a little, on stories of one question."""
    text = CONFIG.replace("rounds = 2", "rounds = 1").replace('"model.seed" = [0, 1]', "seed = [0, 1]")
    text = text.replace("d_model = 8", "d_model = 64").replace("pairs = 6", "pairs = 60")
    text = text.replace("steps = 6\nbatch = 8", "steps = 150\nbatch = 64\nlearning_rate = 3e-3")
    for setting in run_config(tmp_path, "first", text).scores()["settings"]:
        for name in ("causal", "causal_place", "causal_ablation_place", "causal_doubled_answer"):
            metric = setting["metrics"][name]
            assert len(metric["members"]) == 2
            assert None not in (metric["value"], metric["chance"], metric["ceiling"])
        probe = setting["metrics"]["causal_probe_place"]
        assert probe["members"][0] == probe["members"][1]
        assert setting["metrics"]["spliced_accuracy"]["value"] <= 1


def test_a_title_and_the_steps_between_checkpoints_change_no_stage(first: Run, tmp_path: Path):
    text = 'title = "another"\n' + CONFIG.replace("every = 4", "every = 3")
    assert made(first, tmp_path, text)[1] == {}


def test_many_dictionaries_learn_from_one_model(tmp_path: Path):
    text = CONFIG.replace('"model.seed" = [0, 1]', 'seed = [0, 1]\n"training.learning_rate" = [1e-3, 1e-2]')
    recorded = Recorded()
    run = run_config(tmp_path, "first", text.replace(KMEANS, "").replace("pairs = 6", "pairs = 0"), recorded)
    assert [recorded.kinds.count(kind) for kind in ("train-models", "capture", "train-stack")] == [1, 1, 2]
    assert len(read_json(run.stack(0) / "members.json")) == 4
    for setting in run.scores()["settings"]:  # how much comes again from another seed needs no planted directions
        again = setting["metrics"]["stability"]
        assert 0 < again["chance"] < 1
        assert len(again["members"]) == 2
        assert "stability_rank" not in setting["metrics"]


@pytest.mark.parametrize(
    ("name", "step", "lacking"),
    [
        ("model one_fact · seed 0/1 · training", 5, ALL),
        ("model one_fact · seed 0/0 · capturing", 1, {"capture", *LEARNING}),
        ("l1 · seed 0/1/0 · training", 6, {"train-stack", "evaluate-stack", "causal"}),
        ("topk · seed 0/0/0 · evaluation", 1, {"evaluate-stack"}),
        ("kmeans · seed 0/1/0 · fitting", 1, {"baseline", "causal"}),
        ("topk · seed 0/0/0 · editing", 1, {"causal"}),
    ],
)
def test_a_pipeline_that_was_killed_goes_on_to_the_same_bits(
    first: Run, tmp_path: Path, name: str, step: int, lacking: Container[str]
):
    """With all in the cache but the kind of stage that is killed and what depends on it."""
    shutil.copytree(first.cache, tmp_path / "cache")
    for stage in (tmp_path / "cache").iterdir():
        if stage.name.rpartition("-")[0] in lacking:
            shutil.rmtree(stage)
    run = create(tmp_path, "victim", CONFIG)
    tasks = [stage.task() for stage in missing_stages(run, expand(tomllib.loads(CONFIG), "victim"), print)]
    [killed] = [index for index, task in enumerate(tasks) if task.name == name]
    with pytest.raises(Killed):
        finish(run, Dying(name, step))
    recorded = Recorded()
    finish(run, recorded)
    assert contents(run) == contents(first)
    taken = killed + (step == tasks[killed].steps)
    assert recorded.planned == tasks[taken:], "what was made before is taken"


def test_what_is_read_back_takes_and_gives_activations_as_the_model_has_them(first: Run, tmp_path: Path):
    """Its normalization is folded in."""
    plan = expand(first.config(), "here")
    training = plan.stacks[0].first.stages(plan.stacks[0])[0]
    assert isinstance(training, TrainStack)
    inputs = frozenset(stage.key for stage in training.inputs)
    context = Context(tmp_path, Cache(first.cache), TaskProgress(Silent(), 0), StopSignals("resume"), inputs)
    world = training.opened_world(context)
    rows, stack = world.labelled_rows(100), load_stack(first.path, 0)
    saved = read_arrays(first.stack(0) / "weights.safetensors")
    trained = Stack.of({name: torch.from_numpy(array) for name, array in saved.items()}, stack.activation)
    expected = world.normalization.undo(trained.decode(trained.encode(rows.x)))
    reconstruction = stack.decode(stack.encode(world.normalization.undo(rows.x)))
    torch.testing.assert_close(reconstruction, expected, rtol=1e-3, atol=1e-4)


def test_cases_are_compared_where_all_else_is_alike(tmp_path: Path):
    text = CONFIG.replace("[sweep]", '[sweep]\n"dictionary.d_sae" = [10, 12]').replace(KMEANS, "")
    scores = run_config(tmp_path, "first", text.replace("pairs = 6", "pairs = 0")).scores()
    labels = [setting["label"] for setting in scores["settings"]]
    assert labels == ["l1, d_sae 10", "l1, d_sae 12", "topk, d_sae 10", "topk, d_sae 12"]
    compared = {(labels[entry["setting"]], labels[entry["reference"]]) for entry in scores["differences"]}
    assert compared == {("topk, d_sae 10", "l1, d_sae 10"), ("topk, d_sae 12", "l1, d_sae 12")}
    metrics = {entry["metric"] for entry in scores["differences"]}
    assert {"accuracy", "phi"} <= metrics
    assert "separation" not in metrics, "it is the same model's"


def test_one_model_counts_once_however_many_dictionaries_learned_from_it(tmp_path: Path):
    """Of two models with two dictionaries each: two replicates of accuracy, and of what differs between models."""
    text = CONFIG.replace('"model.seed" = [0, 1]', 'seed = [0, 1]\n"model.seed" = [0, 1]')
    text = text.replace(KMEANS, "[cases.wide.model]\nd_ff = 10\n").replace("pairs = 6", "pairs = 0")
    scores = run_config(tmp_path, "first", text).scores()
    labels = [setting["label"] for setting in scores["settings"]]
    differences = {(labels[entry["setting"]], entry["metric"]): entry for entry in scores["differences"]}
    assert differences["wide", "accuracy"]["pairs"] == differences["wide", "phi"]["pairs"] == 2
    assert differences["topk", "phi"]["pairs"] == 4
    wide, plain = (scores["settings"][labels.index(name)]["metrics"]["phi"]["members"] for name in ("wide", "l1"))
    assert differences["wide", "phi"]["value"] == pytest.approx(np.mean(wide) - np.mean(plain))
    metrics = scores["settings"][0]["metrics"]
    assert len(metrics["accuracy"]["members"]) == len(metrics["phi"]["members"]) == 4


def test_no_file_belongs_to_the_cache_and_to_a_run(first: Run):
    """One damaged file must not be two."""
    assert not list(first.path.parent.rglob("*.part"))
    files = [path for folder in first.stacks() for path in folder.rglob("*") if path.is_file()]
    assert files
    assert all(path.stat().st_nlink == 1 for path in files)


def test_a_baseline_is_one_stack_whatever_the_dictionary_beside_it():
    plan = expand(tomllib.loads(CONFIG.replace("[sweep]", '[sweep]\n"dictionary.d_sae" = [10, 12]')), "planned")
    fitted = [len(stack.members) for stack in plan.stacks if stack.first.baseline is not None]
    assert fitted == [2, 2], "of either model, both sizes of the dictionary it is not"
