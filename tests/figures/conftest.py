"""Small finished runs to draw figures of, made once a session from the configurations of the regression tests."""

from functools import cache
from pathlib import Path

import pytest

from tests.pipeline.running import create, finish
from unbraid.results import load_run

CONFIGS = Path(__file__).parents[1] / "regression" / "configs"


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """By the name of a configuration (`superposition`, `mechanisms`, `embedding`, …): its results."""

    @cache
    def results(name):
        folder = tmp_path_factory.mktemp(f"figures-{name}")
        return load_run(finish(create(folder, name, (CONFIGS / f"{name}.toml").read_text())).path)

    return results
