"""The configurations of the study of mechanisms: what their names say is what they switch on, and a small one runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.running import run_config
from unbraid.config import merge, read_toml
from unbraid.config.sweep import at_scale
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import Experiment
from unbraid.studies.shipped import find_config

NINE = [
    "pair_orthogonality",
    "adaptive_tau",
    "dynamic_pairs",
    "correlation_pruning",
    "momentum_importance",
    "adaptive_l1",
    "lateral_inhibition",
    "adaptive_neighbourhoods",
    "reallocation",
]
"""The mechanisms of the source study, in the order of its runs."""
"""In the order the study added them."""
NEEDS = {
    "adaptive_tau": "pair_orthogonality",
    "dynamic_pairs": "pair_orthogonality",
    "momentum_importance": "correlation_pruning",
    "adaptive_neighbourhoods": "lateral_inhibition",
}


def read(name: str) -> dict[str, Any]:
    data = read_toml(find_config(name))
    data.pop("scales", None)
    return data


@pytest.fixture(scope="module")
def cases() -> dict[str, Experiment]:
    """One member of each case."""
    data = merge(read("mechanisms/ablation"), {"sweep": {"replicate": [0], "mechanisms.sparsity.weight": [0.1]}})
    return {member.setting["case"]: member.experiment for member in expand(data, "here").members}


@pytest.fixture(scope="module")
def published() -> dict[str, Experiment]:
    """One member of each of the source's ten runs."""
    data = merge(read("mechanisms/published"), {"sweep": {"seed": [0]}})
    return {member.setting["case"]: member.experiment for member in expand(data, "here").members}


def on(experiment: Experiment) -> list[str]:
    return [name for name in experiment.enabled() if name in NINE]


def forms(experiment: Experiment) -> set[str]:
    return {str(mechanism.to_dict()["form"]) for name, mechanism in experiment.enabled().items() if name in NINE}


def test_each_run_adds_one_mechanism_to_the_one_before(cases: dict[str, Experiment], published: dict[str, Experiment]):
    assert on(cases["plain"]) == []
    assert list(published) == [f"run-{run}" for run in range(10)]
    for run in range(10):
        assert on(published[f"run-{run}"]) == NINE[:run]
        assert run == 0 or on(cases[f"run-{run}"]) == NINE[:run]


def test_the_published_runs_have_the_sources_loss_rate_and_rules(published: dict[str, Experiment]):
    """mean‖x - x̂‖₂ + .04 · L1, rate 3e-4 after 1,000 steps; every rule as published, inhibition in use too."""
    for run, experiment in enumerate(published.values()):
        training, mechanisms = experiment.training, experiment.enabled()
        warmup_steps = round(training.warmup_share * training.steps)
        assert (training.reconstruction_loss, training.learning_rate, warmup_steps) == ("norm", 3e-4, 1000)
        assert mechanisms["sparsity"] == Sparsity(weight=0.04, form="per_sample")
        assert forms(experiment) == ({"published"} if run else set())
        assert "lateral_inhibition" not in mechanisms or mechanisms["lateral_inhibition"].to_dict()["in_use"]


def test_alone_is_with_the_partner_it_needs_and_without_is_without_what_nobody_reads(cases: dict[str, Experiment]):
    assert on(cases["all"]) == NINE
    for name in NINE:
        assert set(on(cases[f"alone-{name}"])) == {name, NEEDS.get(name, name)}
        orphans = {other for other, partner in NEEDS.items() if partner == name}
        assert set(on(cases[f"without-{name}"])) == set(NINE) - {name} - orphans


def test_a_mechanism_has_the_same_settings_in_every_case_and_only_the_published_are_published(
    cases: dict[str, Experiment],
):
    whole = cases["all"].enabled()
    for name, experiment in cases.items():
        if name.startswith("published-"):
            assert forms(experiment) <= {"published", "decoder_cosine"}, name
        else:
            assert all(each == whole[key] for key, each in experiment.enabled().items()), name


def test_every_period_acts_and_the_last_leaves_time(cases: dict[str, Experiment]):
    """At both scales; what starts anew in the very last steps would be scored untrained."""
    data = read_toml(find_config("mechanisms/ablation"))
    for steps in (data["training"]["steps"], data["scales"]["standard"]["training"]["steps"]):
        for experiment in cases.values():
            periods = [each.to_dict().get("every") for each in experiment.enabled().values()]
            assert all(steps // every >= 4 and steps % every >= 40 for every in periods if every)


def test_every_comparison_has_eight_replicates_and_a_path():
    for name in ("mechanisms/ablation", "mechanisms/pairs"):
        sweep = read(name)["sweep"]
        assert sweep["replicate"] == list(range(8))
        assert len(sweep["mechanisms.sparsity.weight"]) >= 3


def test_a_small_ablation_has_scores_with_chance_and_ceiling(tmp_path: Path):
    data = read("mechanisms/ablation")
    data["cases"] = {name: data["cases"][name] for name in ("plain", "all")}
    small = {
        "world": {"dimensions": 12, "n_features": 20},
        "dictionary": {"d_sae": 32},
        "training": {"steps": 30, "batch": 16},
        "evaluation": {"samples": 512},
        "sweep": {"replicate": [0, 1], "mechanisms.sparsity.weight": [0.1, 0.3]},
    }
    settings = run_config(tmp_path, "small", merge(data, small)).scores()["settings"]
    assert [setting["label"] for setting in settings] == [
        "plain, weight 0.1",
        "plain, weight 0.3",
        "all, weight 0.1",
        "all, weight 0.3",
    ]
    for metric in ("absorption", "absorption_fraction", "redundancy", "correlation"):
        for setting in settings:
            assert 0 <= setting["metrics"][metric]["value"] <= 1 + 1e-6
            assert setting["metrics"][metric]["chance"] is not None
            assert setting["metrics"][metric]["ceiling"] is not None


STEPS_LEFT = 60
"""Steps that training goes on after the last features were started anew."""


@pytest.fixture(params=["small", "standard"])
def stories_members(request, tmp_path, pretend_to_capture, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = at_scale(read_toml(find_config("mechanisms/stories")), request.param, "here")
    pretend_to_capture(data)
    return expand(data, "here").members


def test_each_case_has_the_mechanism_it_is_named_for(stories_members):
    mechanisms = {member.setting["case"]: set(member.experiment.enabled()) & set(NINE) for member in stories_members}
    assert mechanisms.pop("plain") == set()
    assert mechanisms.pop("all") == set(NINE)
    assert set(mechanisms) == {f"alone-{name}" for name in NINE}
    assert all(name.removeprefix("alone-") in own and len(own) <= 2 for name, own in mechanisms.items())


def test_the_penalty_is_that_of_the_comparison_and_nothing_else_differs(stories_members):
    """20250126_115529: the top .1 % of normalised co-activations, relu(c - .2), weight 1."""
    both = {
        name: [member.experiment.to_dict() for member in stories_members if member.setting["case"] == name]
        for name in ("plain", "alone-pair_orthogonality")
    }
    for plain, penalised in zip(*both.values(), strict=True):
        penalty = penalised["mechanisms"].pop("pair_orthogonality")
        assert penalty["weight"] * penalty["tau"] == 1.0
        assert (penalty["share"], penalty["threshold"], penalty["form"]) == (0.001, 0.2, "corrected")
        assert penalised == plain


def test_training_goes_on_after_the_last_features_were_started_anew(stories_members):
    for member in stories_members:
        steps, on = member.experiment.training.steps, member.experiment.enabled()
        for name in {"correlation_pruning", "reallocation"} & set(on):
            assert steps % on[name].every >= STEPS_LEFT


def test_it_has_a_path_of_sparsity_and_eight_replicates_and_is_evaluated_on_labels_of_several_kinds(stories_members):
    assert len({member.experiment.replicate() for member in stories_members}) == 8
    assert len({member.setting["mechanisms.sparsity.weight"] for member in stories_members}) >= 2
    assert len(stories_members[0].experiment.evaluation.language_model.labels) >= 3
