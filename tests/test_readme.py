"""What README shows works as it is written."""

import re
from pathlib import Path

import pytest

from unbraid.config import read_toml
from unbraid.pipeline.expand import expand

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def test_the_notebook_example_runs_and_is_under_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    example = blocks("python")[0]
    assert len([line for line in example.splitlines() if line.strip()]) < 10
    exec(example.replace("steps=1000", "steps=3"), {})
    assert (tmp_path / "recovery.png").read_bytes().startswith(b"\x89PNG")


def test_the_estimator_example_runs():
    import numpy as np

    import unbraid

    rows = np.random.default_rng(0).normal(size=(32, 8))
    exec(blocks("python")[1].replace("k=8", "k=8, steps=2"), {"ub": unbraid, "X": rows})


def test_the_configuration_shown_is_valid(tmp_path: Path):
    (tmp_path / "shown.toml").write_text(blocks("toml")[0])
    assert len(expand(read_toml(tmp_path / "shown.toml"), "README").members) == 10


def test_the_commands_shown_are_the_commands_there_are():
    from unbraid.cli import app

    shown = set(re.findall(r"^unbraid ([\w-]+)", README, re.MULTILINE))
    assert shown == {
        command.name or (command.callback and command.callback.__name__) for command in app.registered_commands
    }


def test_every_linked_file_is_there():
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (root / target.partition("#")[0]).exists(), target
