"""Whatever is wrong with a run of models, a user reads one sentence, before anything is on disk."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.test_bad_input import mutated_trees
from tests.test_cli import TINY, unbraid
from unbraid import cli

GOOD = """
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
[model.attention]
kind = "routed"
k = 1
[constraints.head_usage]
weight = 0.1
layers = [0, 1]
[model.training]
steps = 4
batch = 8
[model.evaluation]
stories = 8
[tasks.counting]
model.layers = 1
[sweep]
seed = [0, 1]
"""
ALL = "one_fact, two_facts, counting, ratio, coreference, path"

REFUSED = {
    "heads that do not divide": (
        ["model.heads=3"],
        "heads is 3, which does not divide d_model 8; accepted: 1, 2, 4, 8",
    ),
    "no such task": (["world.task=one_fakt"], f"world.task is 'one_fakt'; did you mean 'one_fact'? accepted: {ALL}"),
    "a task that is a list": (["world.task=[1]"], f"world.task is [1]; accepted: {ALL}"),
    "a layer too many": (["constraints.head_usage.layers=[0, 2]"], "layer 2 of a model of 2 layers; accepted: "),
    "a layer before the first": (["constraints.head_usage.layers=[-1]"], "layer -1 of a model of 2 layers; accepted: "),
    "no layer": (["constraints.head_usage.layers=[]"], "no layer of a model of 2 layers; accepted: "),
    "a layer by a name": (
        ["constraints.head_usage.layers=first"],
        'is \'first\'; accepted: "last", "all", or a list of',
    ),
    "half a layer": (["constraints.head_usage.layers=[0.5]"], 'is [0.5]; accepted: "last", "all", or a list of'),
    "a layer twice": (["constraints.head_usage.layers=[0, 0]"], "is [0, 0]; each layer counts once; accepted: "),
    "no such constraint": (["constraints.head_usag.weight=1"], "'constraints.head_usag'; did you mean 'head_usage'?"),
    "a negative weight": (
        ["constraints.head_usage.weight=-1"],
        "weight is -1; it should be greater than or equal to 0",
    ),
    "no number": (["constraints.head_usage.weight=nan"], "weight is nan; it should be a finite number"),
    "a word for a number": (["constraints.head_usage.weight=much"], "weight is 'much'; it should be a valid number"),
    "a bad weight in a sweep": (
        ["sweep.'constraints.head_usage.weight'=[1, -1]"],
        "weight is -1; it should be greater",
    ),
    "k larger than heads": (
        ["model.attention.k=3"],
        "attention.k is 3 beside 0 shared heads, and there are 2 heads; acc",
    ),
    "no rounds": (["world.rounds=0"], "rounds is 0; it should be greater than or equal to 1"),
    "more people than names": (["world.people=9"], "people is 9; it should be less than or equal to 8"),
    "more places than names": (["world.places=7"], "places is 7; it should be less than or equal to 6"),
    "what the task lacks": (["world.things=2"], "there is no setting 'things'; accepted: people, places, rounds"),
    "settings of no task": (["tasks.cuonting.seed=1"], f"did you mean 'counting'? accepted: {ALL}"),
    "a task of another task": (
        ["tasks.ratio.world.task=path"],
        "would be another task than ratio; accepted: without it",
    ),
    "a task's part that cannot be": (["world.task=counting", "tasks.counting.model.heads=3"], "heads is 3, which does"),
    "a dictionary": (
        ["dictionary.d_sae=9"],
        "dictionary was given, and an experiment of kind 'models' has none; accepted: kind = 'dictionaries' or 'pipe",
    ),
    "training": (["training.steps=3"], "training was given, and an experiment of kind 'models' has none; accepted: "),
    "an evaluation of dictionaries": (
        ["evaluation.language_model={model='m', text='t'}"],
        "evaluation was given, and an experiment of kind 'models' has none; accepted: kind = 'dictionaries' or",
    ),
    "a world without words": (["world={kind='superposition'}", "tasks={}"], "world.kind is 'superposition'; "),
    "no such kind": (["kind=model"], "kind is 'model'; did you mean 'models'? accepted: dictionaries, models, "),
    "a kind that is a list": (["kind=[1]"], "kind is [1]; accepted: dictionaries, models, language_models, "),
    "stories for dictionaries": (["kind=dictionaries"], "an experiment of kind 'dictionaries' has none; accepted: "),
}
"""On stories."""

REFUSED_ELSEWHERE = {
    "a model": (
        ["model.heads=2"],
        "model was given, and an experiment of kind 'dictionaries' has none; accepted: kind = 'models' or 'language_",
    ),
    "constraints": (
        ["constraints.head_usage.weight=1"],
        "constraints was given, and an experiment of kind 'dictionaries' has none; accepted: kind = 'models' or",
    ),
    "activations": (
        ["activations.stories=300"],
        "activations was given, and an experiment of kind 'dictionaries' has none; accepted: kind = 'pipeline', or",
    ),
    "an embedding": (
        ["embedding.perplexity=3.0"],
        "embedding was given, and an experiment of kind 'dictionaries' has none; accepted: kind = 'embedding', or",
    ),
    "tasks": (
        ["tasks.path.seed=1"],
        "tasks were given, and a world of kind 'superposition' has none; accepted: world.",
    ),
}
"""On a planted superposition."""


@pytest.mark.parametrize(
    ("config", "words", "expected"),
    [
        *(pytest.param(GOOD, *case, id=name) for name, case in REFUSED.items()),
        *(pytest.param(TINY, *case, id=f"{name} elsewhere") for name, case in REFUSED_ELSEWHERE.items()),
        pytest.param("", ["world.kind=stories"], "on which models are trained; accepted: world.kind =", id="no kind"),
    ],
)
def test_what_cannot_be_trained_gets_one_sentence(
    config: str, words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "c.toml").write_text(config)
    code, out, err = unbraid(capsys, "run", tmp_path / "c.toml", *words, "--runs", tmp_path / "runs")
    assert (code, out) == (2, ""), err
    assert expected in err
    assert err.startswith(f"unbraid: {tmp_path / 'c.toml'}")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_mutated_configuration_is_accepted_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Up to where the run would begin: that takes no time, and what is accepted is trained in other tests."""
    monkeypatch.setattr(cli, "_work", lambda run, plan, quiet, executor: None)
    codes: list[int] = []

    @settings(
        max_examples=300,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(mutated_trees(tomllib.loads(GOOD)))
    def check(content: bytes) -> None:
        (tmp_path / "c.toml").write_bytes(content)
        code, _, err = unbraid(capsys, "run", tmp_path / "c.toml", "--runs", tmp_path / "runs")
        assert code in (0, 2), err
        assert len(err.splitlines()) == (code == 2)
        codes.append(code)

    check()
    assert codes.count(0) >= 5
    assert codes.count(2) >= 75
