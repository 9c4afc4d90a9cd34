"""Scales change what they say of the base and nothing else; a wrong one is answered with those there are."""

from typing import Any

import pytest

from unbraid.config.sweep import at_scale
from unbraid.errors import UserError
from unbraid.pipeline.expand import expand

BASE: dict[str, Any] = {
    "training": {"steps": 5, "batch": 16},
    "sweep": {"seed": [0]},
    "scales": {"small": {}, "large": {"training": {"steps": 50}, "sweep": {"seed": [0, 1]}}},
}


def test_a_scale_is_merged_over_the_base_and_named():
    assert at_scale(BASE, "large", "here") == {
        "training": {"steps": 50, "batch": 16},
        "sweep": {"seed": [0, 1]},
        "scale": "large",
    }


def test_without_a_scale_it_is_the_base_under_the_name_of_the_scale_that_changes_nothing():
    assert at_scale(BASE, None, "here") == at_scale(BASE, "small", "here")
    assert at_scale(BASE, None, "here")["scale"] == "small"
    without = {**BASE, "scales": {"large": BASE["scales"]["large"]}}
    assert at_scale(without, None, "here") == {key: BASE[key] for key in ("training", "sweep")}


def test_a_configuration_without_scales_is_itself():
    assert at_scale({"training": {"steps": 5}}, None, "here") == {"training": {"steps": 5}}


def test_the_resolved_configuration_keeps_the_name_and_is_its_own_base():
    resolved = expand(at_scale(BASE, "large", "here"), "here").config
    assert (resolved["scale"], resolved["training"]["steps"]) == ("large", 50)
    assert "scales" not in resolved
    assert expand(at_scale(resolved, None, "here"), "here").config == resolved


@pytest.mark.parametrize(
    ("data", "name", "words"),
    [
        (BASE, "lagre", ["no scale 'lagre'", "did you mean 'large'?", "accepted: small, large"]),
        ({"training": {}}, "large", ["'large'", "has no scales", "accepted: no --scale"]),
        ({"scales": 3}, None, ["scales is 3", "accepted: tables"]),
        ({"scales": {"small": 3}}, None, ["scales.small is 3", "accepted: a table"]),
        ({"scales": {"small": {"scales": {}}}}, "small", ["scales.small sets 'scales'"]),
        ({"scales": {"small": {"scale": "x"}}}, "small", ["scales.small sets 'scale'"]),
    ],
)
def test_a_wrong_scale_is_refused_in_a_sentence(data: dict[str, Any], name: str | None, words: list[str]):
    with pytest.raises(UserError) as refusal:
        at_scale(data, name, "here.toml")
    assert str(refusal.value).startswith("here.toml")
    assert all(word in str(refusal.value) for word in words)


def test_a_wrong_setting_inside_a_scale_is_refused_as_anywhere():
    with pytest.raises(UserError, match=r"no setting 'training.stesp'; did you mean 'steps'"):
        expand(at_scale({"scales": {"large": {"training": {"stesp": 3}}}}, "large", "here"), "here")
