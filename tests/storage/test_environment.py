"""What a result may depend on is noted when a run begins, and what has changed since is told."""

from pathlib import Path

import torch

from unbraid.storage.environment import PACKAGES, environment
from unbraid.storage.files import read_json, write_json
from unbraid.storage.runs import Run


def test_versions_threads_and_commit_are_noted(tmp_path: Path):
    noted = read_json(Run.create(tmp_path, "one", "").path / "environment.json")
    assert noted == environment()
    assert set(noted["packages"]) == set(PACKAGES)
    assert noted["packages"]["torch"] == torch.__version__
    assert noted["threads"] == torch.get_num_threads()


def test_only_what_has_changed_is_told(tmp_path: Path):
    run = Run.create(tmp_path, "one", "")
    assert run.environment_changes() == []
    write_json(run.path / "environment.json", {**environment(), "threads": 99})
    assert run.environment_changes() == [f"threads was 99 and is now {torch.get_num_threads()}"]
