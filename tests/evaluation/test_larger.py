"""Each dictionary is compared with the next larger one at the same everything else, and that is a score like any."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.running import run_config
from unbraid.evaluation.larger import next_larger
from unbraid.pipeline.expand import expand
from unbraid.pipeline.kinds import dictionaries
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run

TINY = {
    "world": {"dimensions": 8, "n_features": 12, "active": 2.0},
    "training": {"steps": 10, "batch": 32},
    "mechanisms": {"sparsity": {"weight": 0.05}},
    "evaluation": {"samples": 256},
    "sweep": {
        "dictionary.d_sae": [9, 24, 6],
        "mechanisms.sparsity.weight": [0.05, 0.2],
        "world.firing": [{"kind": "independent"}, {"kind": "correlated", "form": "published"}],
        "seed": [0, 1],
    },
}


ONE_WORLD = {**TINY, "sweep": {path: values for path, values in TINY["sweep"].items() if path != "world.firing"}}


def configs(data):
    """The configurations of the members of every stack."""
    return [[member.experiment.to_dict() for member in stack.members] for stack in expand(data, "here").stacks]


def test_partners_differ_in_their_number_of_features_alone():
    stacks = configs(TINY)
    partners = next_larger(stacks)
    assert len(partners) == 16
    for member, larger in partners.items():
        small, large = (deepcopy(stacks[stack][position]) for stack, position in (member, larger))
        assert (small["dictionary"].pop("d_sae"), large["dictionary"].pop("d_sae")) in {(6, 9), (9, 24)}
        assert small == large


def test_without_sizes_to_compare_there_are_no_partners():
    assert next_larger(configs({"sweep": {"seed": [0, 1], "dictionary.pre_bias": [True, False]}})) == {}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(tmp_path_factory.mktemp("larger"), "run", ONE_WORLD)


def test_it_is_a_score_of_every_setting_but_the_largest(run: Run):
    for setting in run.scores()["settings"]:
        assert ("mmcs_larger" in setting["metrics"]) == (setting["setting"]["dictionary.d_sae"] < 24)


def test_its_values_are_those_of_the_weights_on_disk(run: Run):
    decoders: dict[str, np.ndarray] = {}
    for folder in run.stacks():
        rows = read_arrays(folder / "weights.safetensors")["decoder"]
        for position, member in enumerate(read_json(folder / "members.json")):
            decoders[str({**member["setting"], "seed": member["seed"]})] = rows[position]
    for setting in run.scores()["settings"]:
        if setting["setting"]["dictionary.d_sae"] == 6:
            score = setting["metrics"]["mmcs_larger"]
            for seed, value in enumerate(score["members"]):
                smaller = decoders[str({**setting["setting"], "seed": seed})]
                larger = decoders[str({**setting["setting"], "dictionary.d_sae": 9, "seed": seed})]
                assert value == pytest.approx((smaller @ larger.T).max(1).mean(), abs=1e-5)
            assert 0 < score["chance"] < score["value"] < score["ceiling"] == 1


def test_splitting_stacks_changes_no_score(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dictionaries, "STACK_BYTES", 1)
    split = run_config(tmp_path, "split", ONE_WORLD)
    assert len(split.stacks()) == 12
    for ours, theirs in zip(split.scores()["settings"], run.scores()["settings"], strict=True):
        metric = "mmcs_larger" if "mmcs_larger" in theirs["metrics"] else "mmcs"
        expected = theirs["metrics"][metric]["members"]
        assert ours["metrics"][metric]["members"] == pytest.approx(expected, abs=1e-5)
