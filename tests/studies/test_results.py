"""What a study says is read from its files: scores, and beside them its scores on a language model."""

import pytest

from unbraid.errors import UserError
from unbraid.storage.files import write_json, write_sealed
from unbraid.storage.runs import Run
from unbraid.studies.results import Results


def members(replicates):
    return [{"stack": 0, "member": i, "seed": i, "replicate": name} for i, name in enumerate(replicates)]


def metric(values, chance=None):
    return {"value": 0.0, "interval": None, "chance": chance, "ceiling": None, "members": values}


@pytest.fixture
def run(tmp_path):
    """Two settings in other orders in the two files, and replicates too."""
    made = Run.create(tmp_path, "made", "seed = 0\n", {"kind": "dictionaries", "leading": "l0", "sections": []})
    scored = [
        {"label": f"w {w}", "setting": {"w": w}, "members": members("ab"), "metrics": {"l0": metric([w, w + 1.0])}}
        for w in (1, 2)
    ]
    on_model = [
        {
            "label": f"w {w}",
            "setting": {"w": w},
            "members": members("ba"),
            "metrics": {"l0": metric([70.0, 80.0]), "probe_1": metric([w + 0.5, w + 0.25], chance=w / 10)},
        }
        for w in (2, 1)
    ]
    write_json(made.path / "scores.json", {"settings": scored, "differences": []})
    write_sealed(made.path / "language_model.json", {"settings": on_model, "warnings": []})
    return made


def test_scores_on_a_language_model_stand_beside_by_setting_and_replicate(run):
    results = Results.read(run)
    assert results.values("probe_1", {"w": 1}) == {"a": 1.25, "b": 1.5}
    assert results.values("probe_1", {"w": 2}) == {"a": 2.25, "b": 2.5}
    assert results.chance("probe_1", {"w": 2}) == 0.2


def test_a_score_of_one_name_is_that_of_the_run_itself(run):
    assert Results.read(run).values("l0", {"w": 1}) == {"a": 1, "b": 2}


def test_a_run_without_a_language_model_has_its_own_scores_only(run):
    (run.path / "language_model.json").unlink()
    assert Results.read(run).values("l0", {"w": 2}) == {"a": 2, "b": 3}
    with pytest.raises(UserError, match="did not measure 'probe_1'"):
        Results.read(run).values("probe_1", {"w": 2})
