"""The study of seed 003 on a language model: what its cases switch on, and that new features have time to learn."""

import pytest

from unbraid.config import read_toml
from unbraid.config.sweep import at_scale
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.pipeline.expand import expand
from unbraid.studies.shipped import find_config

NINE = {name for name in MECHANISMS if name not in ("sparsity", "matryoshka")}
LEFT = 60
"""Steps that training goes on after the last features were started anew."""


@pytest.fixture(params=["small", "standard"])
def members(request, tmp_path, pretend_to_capture, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = at_scale(read_toml(find_config("mechanisms/stories")), request.param, "here")
    pretend_to_capture(data)
    return expand(data, "here")


def test_each_case_has_the_mechanism_it_is_named_for(members):
    found = {member.setting["case"]: set(member.experiment.enabled()) & NINE for member in members}
    assert found.pop("plain") == set()
    assert found.pop("all") == NINE
    assert set(found) == {f"alone-{name}" for name in NINE}
    assert all(name.removeprefix("alone-") in own and len(own) <= 2 for name, own in found.items())


def test_the_penalty_is_that_of_the_comparison_and_nothing_else_differs(members):
    """20250126_115529: the top .1 % of normalised co-activations, relu(c - .2), weight 1."""
    both = {
        name: [member.experiment.to_dict() for member in members if member.setting["case"] == name]
        for name in ("plain", "alone-pair_orthogonality")
    }
    for plain, penalised in zip(*both.values(), strict=True):
        penalty = penalised["mechanisms"].pop("pair_orthogonality")
        assert penalty == {"weight": 1.0, "share": 0.001, "tau": 0.2, "form": "corrected"}
        assert penalised == plain


def test_training_goes_on_after_the_last_features_were_started_anew(members):
    for member in members:
        steps, on = member.experiment.training.steps, member.experiment.enabled()
        for name in {"correlation_pruning", "reallocation"} & set(on):
            assert steps % on[name].every >= LEFT


def test_it_has_a_path_of_sparsity_and_five_seeds_and_is_judged_by_labels_of_several_kinds(members):
    assert len({member.replicate() for member in members}) == 5
    assert len({member.setting["mechanisms.sparsity.weight"] for member in members}) >= 2
    assert len(members[0].experiment.judging.labels) >= 3
