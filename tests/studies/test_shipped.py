"""Configurations that ship are found by study and name; a stem alone is refused with what was meant."""

from pathlib import Path

import pytest

from unbraid.errors import UserError
from unbraid.studies.shipped import config_name, find_config, shipped


def test_names_are_paths_inside_the_folder():
    configs = shipped()
    assert {"superposition/grid", "mechanisms/ablation", "pipeline/demo", "quickstart"} <= configs.keys()
    assert all(path.parts[-len(Path(name).parts) :] == Path(f"{name}.toml").parts for name, path in configs.items())
    assert all(config_name(path) == name for name, path in configs.items())


@pytest.mark.parametrize("text", ["superposition/grid", "configs/superposition/grid.toml"])
def test_a_configuration_is_found_by_its_name_from_anywhere(text: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config(text) == shipped()["superposition/grid"]


def test_a_file_is_found_by_its_path_and_named_by_its_stem(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.touch()
    assert find_config(str(path)) == path
    assert config_name(path) == "mine"


def test_a_folder_of_the_same_name_is_not_taken_for_a_configuration(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("superposition/grid").mkdir(parents=True)
    assert find_config("superposition/grid") == shipped()["superposition/grid"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("grid", "did you mean 'superposition/grid'?"),
        ("grid.toml", "did you mean 'superposition/grid'?"),
        ("architectures", "did you mean 'pipeline/architectures' or 'superposition/architectures'?"),
        ("superpositoin/grid", "did you mean 'superposition/grid'?"),
        ("superposition/gird", "did you mean 'superposition/grid'?"),
    ],
)
def test_another_name_is_refused_with_what_was_meant(text: str, meant: str):
    with pytest.raises(UserError) as refused:
        find_config(text)
    assert meant in str(refused.value)
    assert "accepted: benchmark/synth, crosscoders/planted-pair, gauge/alignment" in str(refused.value)
