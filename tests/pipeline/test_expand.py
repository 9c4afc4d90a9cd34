"""From cases, tasks and a [sweep] table to members: how many, in what order, and which are replicates."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.config import JsonDict, to_toml
from unbraid.config.sweep import MOST_MEMBERS, overridden, sweep_size
from unbraid.dictionaries import TopK
from unbraid.errors import UserError
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import Member


def members_of(data: JsonDict) -> tuple[Member, ...]:
    return expand(data, "here").members


def resolve(data: JsonDict) -> JsonDict:
    return expand(data, "here").config


SWEEP = {"mechanisms.sparsity.weight": [0.1, 0.2, 0.3], "seed": [4, 5]}


def test_every_combination_is_a_member_the_last_path_varying_fastest():
    members = members_of({"sweep": SWEEP})
    seen = [(m.experiment.enabled()["sparsity"].to_dict()["weight"], m.experiment.seed) for m in members]
    assert seen == [(0.1, 4), (0.1, 5), (0.2, 4), (0.2, 5), (0.3, 4), (0.3, 5)]


def test_seeds_are_replicates_and_not_part_of_the_setting():
    members = members_of({"sweep": {"seed": [1, 2], "world.seed": [7, 8]}})
    assert [m.setting for m in members] == [{}] * 4
    assert [m.experiment.replicate() for m in members] == ["7/1", "8/1", "7/2", "8/2"]


@pytest.mark.parametrize(
    ("data", "replicates", "stacks"),
    [
        ({"training": {"steps": 3}}, ["0/0", "5/5"], 2),
        ({"kind": "models"}, ["0/0", "5/5"], 2),
        ({"kind": "pipeline"}, ["0/0/0", "5/5/5"], 2),
        ({"kind": "embedding"}, ["0/0", "5/5"], 2),
        ({"cases": {"a": {"world": {"seed": 9}}}}, ["0/0", "5/5"], 2),
    ],
)
def test_a_replicate_has_a_world_data_and_an_initialisation_of_its_own(data: dict, replicates: list[str], stacks: int):
    plan = expand({**data, "sweep": {"replicate": [0, 5]}}, "here")
    assert [member.experiment.replicate() for member in plan.members] == replicates
    assert [member.setting for member in plan.members] == [{"case": "a"} if "cases" in data else {}] * 2
    assert len(plan.stacks) == stacks
    again = expand(plan.config, "there")
    assert [member.experiment for member in again.members] == [member.experiment for member in plan.members]


def test_settings_of_a_replicate_share_its_world_and_train_together():
    plan = expand({"sweep": {"mechanisms.sparsity.weight": [0.1, 0.2], "replicate": [3, 4]}}, "here")
    worlds = [{member.experiment.to_dict()["world"]["seed"] for member in stack.members} for stack in plan.stacks]
    assert worlds == [{3}, {4}]
    assert [len(stack.members) for stack in plan.stacks] == [2, 2]


def test_replicates_and_seeds_are_not_both_swept_or_overridden():
    for path in ("seed", "world.seed"):
        with pytest.raises(UserError, match=f"sweep.replicate sets '{path}', which is swept too"):
            members_of({"sweep": {"replicate": [0, 1], path: [0, 1]}})
        with pytest.raises(UserError, match=rf"replicates set '{path}'.*accepted: sweep.replicate=\[3\]"):
            overridden({"sweep": {"replicate": [0, 1]}}, [f"{path}=3"], "here")
    with pytest.raises(UserError, match="seed is -1"):
        members_of({"sweep": {"replicate": [0, -1]}})


def test_without_a_sweep_there_is_one_member():
    assert len(members_of({})) == 1


def test_a_swept_table_is_put_in_place():
    members = members_of({"sweep": {"dictionary.activation": [{"kind": "relu"}, {"kind": "topk", "k": 3}]}})
    assert [m.experiment.dictionary.activation.to_dict() for m in members] == [
        {"kind": "relu"},
        TopK(k=3).to_dict(),
    ]


def test_quoted_and_nested_paths_mean_the_same():
    nested = members_of({"sweep": {"training": {"steps": [3, 4]}}})
    assert [m.experiment for m in nested] == [m.experiment for m in members_of({"sweep": {"training.steps": [3, 4]}})]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True), st.integers(1, 500))
def test_resolving_twice_changes_nothing(seeds: list[int], steps: int):
    once = resolve({"training": {"steps": steps}, "sweep": {"seed": seeds}})
    assert resolve(once) == once
    assert to_toml(once)


def test_a_bad_member_is_named_by_its_values():
    with pytest.raises(UserError, match=r'"training.steps": 0'):
        members_of({"sweep": {"training.steps": [5, 0]}})


CASES = {
    "plain": {},
    "sparse": {"mechanisms": {"sparsity": {"weight": 0.3}}},
    "few": {"dictionary": {"activation": {"kind": "topk", "k": 3}}, "training": {"batch": 8}},
}


def test_each_case_is_merged_over_the_base_and_leaves_the_others_alone():
    members = members_of({"training": {"batch": 4}, "cases": CASES})
    assert [m.setting for m in members] == [{"case": "plain"}, {"case": "sparse"}, {"case": "few"}]
    assert [list(m.experiment.enabled()) for m in members] == [[], ["sparsity"], []]
    assert [m.experiment.dictionary.activation.to_dict()["kind"] for m in members] == ["relu", "relu", "topk"]
    assert [m.experiment.training.batch for m in members] == [4, 4, 8]


def test_a_sweep_goes_over_every_case_and_has_the_last_word():
    members = members_of({"cases": CASES, "sweep": {"training.batch": [5, 6], "seed": [1, 2]}})
    assert len(members) == 3 * 2 * 2
    assert [m.experiment.training.batch for m in members[-4:]] == [5, 5, 6, 6]
    assert members[-1].setting == {"case": "few", "training.batch": 6}


def test_cases_survive_being_resolved_and_do_not_leak_into_the_base():
    data = {"cases": {"sparse": CASES["sparse"], "few": CASES["few"]}, "sweep": {"seed": [1, 2]}}
    resolved = tomllib.loads(to_toml(resolve(data)))
    assert resolve(resolved) == resolved
    assert resolved["mechanisms"] == {}
    assert [m.experiment for m in members_of(resolved)] == [m.experiment for m in members_of(data)]


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
        members_of({"cases": cases})


STORIES = {
    "kind": "models",
    "world": {"kind": "stories", "rounds": 2},
    "cases": {"few": {"model": {"layers": 1}}, "many": {"model": {"d_ff": 32}}},
    "tasks": {"counting": {"world": {"people": 3}, "model": {"layers": 3, "training": {"steps": 9}}}},
    "sweep": {"world.task": ["one_fact", "counting"]},
}


def test_what_a_task_needs_is_merged_over_every_case_of_that_task_alone():
    experiments = {tuple(m.setting.values()): m.experiment for m in members_of(STORIES)}
    assert {key: experiment.model.layers for key, experiment in experiments.items()} == {
        ("few", "one_fact"): 1,
        ("few", "counting"): 3,
        ("many", "one_fact"): 2,
        ("many", "counting"): 3,
    }
    assert experiments["many", "counting"].model.d_ff == 32
    assert [experiment.world.people for experiment in experiments.values()] == [None, 3, None, 3]
    assert [experiment.model.training.steps == 9 for experiment in experiments.values()] == [False, True, False, True]


def test_a_task_that_is_not_written_is_the_first():
    data = {"kind": "models", "tasks": {"one_fact": {"model": {"layers": 3}}}}
    assert [m.experiment.model.layers for m in members_of(data)] == [3]


def test_the_sweep_has_the_last_word_over_what_a_task_needs():
    members = members_of({**STORIES, "sweep": {**STORIES["sweep"], "model.layers": [4, 5]}})
    assert [m.experiment.model.layers for m in members] == [4, 5] * 4


def test_what_tasks_need_survives_being_resolved_and_does_not_leak_into_the_base():
    data = {**STORIES, "sweep": {"world.task": ["counting", "one_fact"]}}
    resolved = tomllib.loads(to_toml(resolve(data)))
    assert resolve(resolved) == resolved
    assert resolved["model"]["layers"] == 2
    assert [m.experiment for m in members_of(resolved)] == [m.experiment for m in members_of(data)]


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
        members_of({**STORIES, "tasks": tasks})


def test_an_override_that_every_case_undoes_is_refused():
    data = {"cases": {"small": {"training": {"batch": 4}}, "large": {"training": {"batch": 8}, "seed": 3}}}
    with pytest.raises(UserError, match=r"every case sets 'training.batch'.*cases.small.training.batch=5"):
        overridden(data, ["training.batch=5"], "here")
    changed = overridden(data, ["seed=5", "cases.small.training.batch=5"], "here")
    assert (changed["seed"], changed["cases"]["small"]["training"]["batch"]) == (5, 5)


def test_an_override_of_what_is_swept_is_refused_with_what_to_write_instead():
    with pytest.raises(UserError, match=r"'training.steps' is swept.*accepted: sweep.'training.steps'=\[5\]"):
        overridden({"sweep": {"training.steps": [3, 4]}}, ["training.steps=5"], "here")


@pytest.mark.parametrize(
    ("path", "values", "refused"),
    [
        ("model", [{"d_ff": 32}, {"layers": 3}], False),
        ("model", [{"d_ff": 32}, {"training": {"steps": 3}}], False),
        ("model", [{"training": {"steps": 4}}, {"training": {"steps": 3}}], True),
        ("model", [{"kind": "transformer"}, {"kind": "gauge"}], False),
        ("model.training", [{"batch": 4}, {"batch": 8}], False),
        ("model.training.steps", [3, 4], True),
    ],
)
def test_an_override_under_a_swept_table_is_refused_only_where_every_value_sets_it(path, values, refused: bool):
    """How a model is trained stays when the sweep puts a table of another kind in its place."""
    data: JsonDict = {"kind": "models", "sweep": {path: values}}
    if refused:
        with pytest.raises(UserError, match=r"'model.training.steps' is swept"):
            overridden(data, ["model.training.steps=60"], "here")
    else:
        steps = [
            m.experiment.model.training.steps for m in members_of(overridden(data, ["model.training.steps=60"], "here"))
        ]
        assert 60 in steps


def test_an_override_under_a_table_that_other_kinds_replace_is_refused():
    data = {"sweep": {"dictionary.activation": [{"kind": "relu"}, {"kind": "topk", "k": 3}]}}
    with pytest.raises(UserError, match=r"'dictionary.activation.k' is swept"):
        overridden(data, ["dictionary.activation.k=5"], "here")


@pytest.mark.parametrize("values", [100, 10_000])
def test_a_sweep_of_a_hundred_million_members_is_refused_before_it_is_expanded(values: int, monkeypatch):
    """Of four paths with 100 values each, or of two with 10,000: the size is known from the lists."""

    def no_combination(data: JsonDict) -> None:
        raise AssertionError("the sweep was expanded")

    monkeypatch.setattr("unbraid.config.sweep.combine", no_combination)
    paths = ("seed", "world.seed", "training.batch", "training.steps")[: 4 if values == 100 else 2]
    sweep = {path: list(range(1, values + 1)) for path in paths}
    with pytest.raises(UserError) as refusal:
        expand({"sweep": sweep}, "big.toml")
    assert str(refusal.value) == "big.toml: the sweep has 100,000,000 members; accepted: at most 20,000"


def test_cases_count_in_the_size_of_a_sweep_and_the_limit_itself_is_accepted():
    sweep = {"seed": list(range(MOST_MEMBERS // 2))}
    config = {"cases": {"a": {}, "b": {}}, "sweep": sweep}
    assert sweep_size(config) == MOST_MEMBERS
    sweep["seed"].append(MOST_MEMBERS)
    with pytest.raises(UserError, match=r"the sweep has 20,002 members; accepted: at most 20,000$"):
        expand(config, "here")


def test_tasks_on_a_world_that_has_none_are_refused():
    with pytest.raises(UserError, match="tasks were given, and a world of kind 'superposition' has none"):
        expand({"tasks": {"counting": {}}}, "here")
