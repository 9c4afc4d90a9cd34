"""From a [sweep] table to members: how many, in what order, and which are replicates."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unbraid.sweeps.grid import refuse_swept, resolve

from unbraid.config import to_toml
from unbraid.errors import UserError
from unbraid.pipeline.expand import expand

SWEEP = {"mechanisms.sparsity.weight": [0.1, 0.2, 0.3], "seed": [4, 5]}


def test_every_combination_is_a_member_the_last_path_varying_fastest():
    members = expand({"sweep": SWEEP}, "here")
    seen = [(m.experiment.enabled()["sparsity"].to_dict()["weight"], m.experiment.seed) for m in members]
    assert seen == [(0.1, 4), (0.1, 5), (0.2, 4), (0.2, 5), (0.3, 4), (0.3, 5)]


def test_seeds_are_replicates_and_not_part_of_the_setting():
    members = expand({"sweep": {"seed": [1, 2], "world.seed": [7, 8]}}, "here")
    assert [m.setting for m in members] == [{}] * 4
    assert [m.replicate() for m in members] == ["7/1", "8/1", "7/2", "8/2"]


def test_without_a_sweep_there_is_one_member():
    assert len(expand({}, "here")) == 1


def test_a_swept_table_is_put_in_place():
    members = expand({"sweep": {"dictionary.activation": [{"kind": "relu"}, {"kind": "topk", "k": 3}]}}, "here")
    assert [m.experiment.dictionary.activation.to_dict() for m in members] == [
        {"kind": "relu"},
        {"kind": "topk", "k": 3},
    ]


def test_quoted_and_nested_paths_mean_the_same():
    nested = expand({"sweep": {"training": {"steps": [3, 4]}}}, "here")
    assert [m.experiment for m in nested] == [
        m.experiment for m in expand({"sweep": {"training.steps": [3, 4]}}, "here")
    ]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True), st.integers(1, 500))
def test_resolving_twice_changes_nothing(seeds: list[int], steps: int):
    once = resolve({"training": {"steps": steps}, "sweep": {"seed": seeds}}, "here")
    assert resolve(once, "here") == once
    assert to_toml(once)


def test_a_bad_member_is_named_by_its_values():
    with pytest.raises(UserError, match=r'"training.steps": 0'):
        expand({"sweep": {"training.steps": [5, 0]}}, "here")


CASES = {
    "plain": {},
    "sparse": {"mechanisms": {"sparsity": {"weight": 0.3}}},
    "few": {"dictionary": {"activation": {"kind": "topk", "k": 3}}, "training": {"batch": 8}},
}


def test_each_case_is_merged_over_the_base_and_leaves_the_others_alone():
    members = expand({"training": {"batch": 4}, "cases": CASES}, "here")
    assert [m.setting for m in members] == [{"case": "plain"}, {"case": "sparse"}, {"case": "few"}]
    assert [list(m.experiment.enabled()) for m in members] == [[], ["sparsity"], []]
    assert [m.experiment.dictionary.activation.to_dict()["kind"] for m in members] == ["relu", "relu", "topk"]
    assert [m.experiment.training.batch for m in members] == [4, 4, 8]


def test_a_sweep_goes_over_every_case_and_has_the_last_word():
    members = expand({"cases": CASES, "sweep": {"training.batch": [5, 6], "seed": [1, 2]}}, "here")
    assert len(members) == 3 * 2 * 2
    assert [m.experiment.training.batch for m in members[-4:]] == [5, 5, 6, 6]
    assert members[-1].setting == {"case": "few", "training.batch": 6}


def test_cases_survive_being_resolved_and_do_not_leak_into_the_base():
    data = {"cases": {"sparse": CASES["sparse"], "few": CASES["few"]}, "sweep": {"seed": [1, 2]}}
    resolved = tomllib.loads(to_toml(resolve(data, "here")))
    assert resolve(resolved, "here") == resolved
    assert resolved["mechanisms"] == {}
    assert [m.experiment for m in expand(resolved, "here")] == [m.experiment for m in expand(data, "here")]


@pytest.mark.parametrize(
    ("cases", "sentence"),
    [
        ([{}], "each named as in"),
        ({"a": 3}, "each named as in"),
        ({"a": {"title": "A"}}, "cases.a.title cannot differ between cases"),
        ({"a": {"training": {"steps": 0}}}, "training.steps is 0"),
    ],
)
def test_bad_cases_are_refused(cases, sentence):
    with pytest.raises(UserError, match=sentence):
        expand({"cases": cases}, "here")


STORIES = {
    "world": {"kind": "stories", "rounds": 2},
    "cases": {"few": {"model": {"layers": 1}}, "many": {"model": {"d_ff": 32}}},
    "tasks": {"counting": {"world": {"people": 3}, "model": {"layers": 3}, "teaching": {"steps": 9}}},
    "sweep": {"world.task": ["one_fact", "counting"]},
}


def test_what_a_task_needs_is_merged_over_every_case_of_that_task_alone():
    found = {tuple(m.setting.values()): m.experiment for m in expand(STORIES, "here")}
    assert {key: one.model.layers for key, one in found.items()} == {
        ("few", "one_fact"): 1,
        ("few", "counting"): 3,
        ("many", "one_fact"): 2,
        ("many", "counting"): 3,
    }
    assert found["many", "counting"].model.d_ff == 32
    assert [one.asking.people for one in found.values()] == [None, 3, None, 3]
    assert [one.teaching.steps == 9 for one in found.values()] == [False, True, False, True]


def test_a_task_that_is_not_written_is_the_first():
    data = {"world": {"kind": "stories"}, "tasks": {"one_fact": {"model": {"layers": 3}}}}
    assert [m.experiment.model.layers for m in expand(data, "here")] == [3]


def test_the_sweep_has_the_last_word_over_what_a_task_needs():
    members = expand({**STORIES, "sweep": {**STORIES["sweep"], "model.layers": [4, 5]}}, "here")
    assert [m.experiment.model.layers for m in members] == [4, 5] * 4


def test_what_tasks_need_survives_being_resolved_and_does_not_leak_into_the_base():
    data = {**STORIES, "sweep": {"world.task": ["counting", "one_fact"]}}
    resolved = tomllib.loads(to_toml(resolve(data, "here")))
    assert resolve(resolved, "here") == resolved
    assert resolved["model"]["layers"] == 2
    assert [m.experiment for m in expand(resolved, "here")] == [m.experiment for m in expand(data, "here")]


@pytest.mark.parametrize(
    ("tasks", "sentence"),
    [
        ({"countin": {}}, "tasks.countin is for a task that is not there; did you mean 'counting'"),
        ({"counting": 3}, "each named as in"),
        ({"counting": {"title": "A"}}, "tasks.counting.title cannot differ between tasks"),
    ],
)
def test_bad_needs_of_tasks_are_refused(tasks, sentence):
    with pytest.raises(UserError, match=sentence):
        expand({**STORIES, "tasks": tasks}, "here")


def test_an_override_that_every_case_undoes_is_refused():
    cases = {"small": {"training": {"batch": 4}}, "large": {"training": {"batch": 8}, "seed": 3}}
    data = {"cases": cases}
    with pytest.raises(UserError, match=r"every case sets 'training.batch'.*cases.small.training.batch=5"):
        refuse_swept({"training": {"batch": 5}}, data, "here")
    refuse_swept({"seed": 5, "cases": {"small": {"training": {"batch": 5}}}}, data, "here")
