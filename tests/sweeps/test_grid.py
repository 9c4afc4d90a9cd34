"""From a [sweep] table to members: how many, in what order, and which are replicates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.config import to_toml
from unbraid.errors import Refusal
from unbraid.sweeps.grid import expand, resolve

SWEEP = {"mechanisms.sparsity.weight": [0.1, 0.2, 0.3], "seed": [4, 5]}


def test_every_combination_is_a_member_the_last_path_varying_fastest():
    members = expand({"sweep": SWEEP}, "here")
    seen = [(m.experiment.enabled()["sparsity"].tree()["weight"], m.experiment.seed) for m in members]
    assert seen == [(0.1, 4), (0.1, 5), (0.2, 4), (0.2, 5), (0.3, 4), (0.3, 5)]


def test_seeds_are_replicates_and_not_part_of_the_setting():
    members = expand({"sweep": {"seed": [1, 2], "world.seed": [7, 8]}}, "here")
    assert [m.setting for m in members] == [{}] * 4
    assert [m.replicate() for m in members] == ["7/1", "8/1", "7/2", "8/2"]


def test_without_a_sweep_there_is_one_member():
    assert len(expand({}, "here")) == 1


def test_a_swept_table_is_put_in_place():
    members = expand({"sweep": {"dictionary.activation": [{"kind": "relu"}, {"kind": "topk", "k": 3}]}}, "here")
    assert [m.experiment.dictionary.activation.tree() for m in members] == [{"kind": "relu"}, {"kind": "topk", "k": 3}]


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
    with pytest.raises(Refusal, match=r'"training.steps": 0'):
        expand({"sweep": {"training.steps": [5, 0]}}, "here")
