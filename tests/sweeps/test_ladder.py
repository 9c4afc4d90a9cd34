"""The configurations of seed 003: what their names say is what they switch on, and a small one runs to a report."""

from pathlib import Path
from typing import Any

import pytest
from unbraid.sweeps.grid import resolve

from unbraid.config import merge, read_toml, to_toml
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.pipeline.executors import execute
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import Experiment
from unbraid.progress import Silent
from unbraid.reports.page import write_report
from unbraid.storage.runs import Run
from unbraid.studies.shipped import find_config

NINE = [name for name in MECHANISMS if name not in ("sparsity", "matryoshka")]
"""In the order the seed added them."""
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
    data = merge(read("mechanisms/ablation"), {"sweep": {"seed": [0], "mechanisms.sparsity.weight": [0.1]}})
    return {member.setting["case"]: member.experiment for member in expand(data, "here")}


def on(experiment: Experiment) -> list[str]:
    return [name for name in experiment.enabled() if name in NINE]


def forms(experiment: Experiment) -> set[str]:
    return {str(mechanism.to_dict()["form"]) for name, mechanism in experiment.enabled().items() if name in NINE}


def test_each_rung_adds_one_mechanism_to_the_one_before(cases: dict[str, Experiment]):
    assert on(cases["plain"]) == []
    for rung in range(1, 10):
        assert on(cases[f"run-{rung}"]) == NINE[:rung]
        assert on(expand(read(f"mechanisms/run-{rung}"), "here")[0].experiment) == NINE[:rung]
    assert on(expand(read("mechanisms/run-0"), "here")[0].experiment) == []


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
    for rung in range(1, 10):
        assert forms(expand(read(f"mechanisms/run-{rung}"), "here")[0].experiment) == {"published"}


def test_every_period_acts_and_the_last_leaves_time(cases: dict[str, Experiment]):
    """At both scales; what starts anew in the very last steps would be scored untrained."""
    data = read_toml(find_config("mechanisms/ablation"))
    for steps in (data["training"]["steps"], data["scales"]["standard"]["training"]["steps"]):
        for experiment in cases.values():
            periods = [each.to_dict().get("every") for each in experiment.enabled().values()]
            assert all(steps // every >= 4 and steps % every >= 40 for every in periods if every)


def test_every_comparison_has_five_seeds_and_a_path():
    for name in ("mechanisms/ablation", "mechanisms/pairs"):
        sweep = read(name)["sweep"]
        assert sweep["seed"] == [0, 1, 2, 3, 4]
        assert len(sweep["mechanisms.sparsity.weight"]) >= 3


def test_a_small_ladder_runs_to_its_report(tmp_path: Path):
    data = read("mechanisms/ablation")
    data["cases"] = {name: data["cases"][name] for name in ("plain", "all")}
    small = {
        "world": {"dimensions": 12, "n_features": 20},
        "dictionary": {"d_sae": 32},
        "training": {"steps": 30, "batch": 16, "warmup_steps": 2},
        "scoring": {"samples": 512},
        "sweep": {"seed": [0, 1], "mechanisms.sparsity.weight": [0.1, 0.3]},
    }
    run = Run.create(tmp_path, "one", to_toml(resolve(merge(data, small), "here")))
    execute(run, Silent())
    settings = run.scores()["settings"]
    assert [one["label"] for one in settings] == [
        "plain, weight 0.1",
        "plain, weight 0.3",
        "all, weight 0.1",
        "all, weight 0.3",
    ]
    for metric in ("absorption", "absorption_fraction", "redundancy", "correlation"):
        for one in settings:
            assert 0 <= one["metrics"][metric]["value"] <= 1 + 1e-6
            assert one["metrics"][metric]["chance"] is not None
            assert one["metrics"][metric]["ceiling"] is not None
    page = write_report([run], tmp_path / "page.html").read_text()
    assert "Redundancy" in page
    assert "without-" not in page
