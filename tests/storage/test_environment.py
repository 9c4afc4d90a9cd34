"""What a result may depend on is noted when a run begins, and what has changed since is told."""

from pathlib import Path

import pytest
import torch

from unbraid.storage.files import Damaged, write_sealed
from unbraid.storage.runs import PACKAGES, Run, environment

FACTS = {"kind": "dictionaries", "leading": "mmcs", "sections": []}


def test_versions_threads_and_commit_are_noted(tmp_path: Path):
    noted = Run.create(tmp_path, "one", "", FACTS).environment()
    assert noted == environment()
    assert set(noted["packages"]) == set(PACKAGES)
    assert noted["packages"]["torch"] == torch.__version__
    assert noted["threads"] == torch.get_num_threads()


def test_only_what_has_changed_is_told(tmp_path: Path):
    run = Run.create(tmp_path, "one", "", FACTS)
    assert run.environment_changes() == []
    write_sealed(run.path / "environment.json", {**environment(), "threads": 99})
    assert run.environment_changes() == [f"threads was 99 and is now {torch.get_num_threads()}"]


def test_a_changed_note_is_refused_with_what_to_do(tmp_path: Path):
    run = Run.create(tmp_path, "one", "", FACTS)
    path = run.path / "environment.json"
    path.write_bytes(path.read_bytes().replace(b'"threads": ', b'"threads": 1'))
    with pytest.raises(Damaged, match=r"environment\.json is damaged.*; put the file back, or start another run: `unb"):
        run.environment_changes()
