"""What docs/adding-a-kind.md says, done on a copy of the package: file, registry, run, the cache, the refusal."""

import json
from pathlib import Path

import pytest

from tests.pages import code_blocks, copy_package, insert_after, run_python
from unbraid.metrics.recovery import expected_best

THE_FILE, THE_IMPORT, THE_LINE = code_blocks("adding-a-kind.md", "python")
(THE_CONFIGURATION,) = code_blocks("adding-a-kind.md", "toml")
DIMENSIONS, WIDTHS = 32, [16, 64, 256]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_package(tmp_path_factory.mktemp("kind"))
    kinds = folder / "unbraid" / "pipeline" / "kinds"
    (kinds / "chance.py").write_text(THE_FILE)
    insert_after(kinds / "__init__.py", r"^from unbraid\.pipeline\.experiment .*$", THE_IMPORT)
    insert_after(kinds / "__init__.py", r"^BUILT_IN: .*$", THE_LINE)
    (folder / "chance.toml").write_text(THE_CONFIGURATION)
    run_python(folder, "-m", "unbraid", "run", "chance.toml", "--name", "first", "--quiet")
    return folder


def test_the_run_scores_what_the_closed_form_says(package: Path):
    run = package / "runs" / "first"
    settings = json.loads((run / "scores.json").read_text())["settings"]
    assert [setting["setting"] for setting in settings] == [{"dictionary.d_sae": width} for width in WIDTHS]
    assert [len(setting["members"]) for setting in settings] == [5, 5, 5]
    scores = [setting["metrics"]["mmcs"]["value"] for setting in settings]
    assert scores == pytest.approx([expected_best(width, DIMENSIONS) for width in WIDTHS], abs=0.02)
    assert json.loads((run / "run.json").read_text())["kind"] == "chance"


def test_the_run_has_a_report_and_is_shown(package: Path):
    assert "What random directions score" in (package / "runs" / "first" / "report.html").read_text()
    shown = json.loads(run_python(package, "-m", "unbraid", "show", "first", "--json"))
    assert len(shown["settings"]) == 3


def test_a_second_run_takes_every_stage_from_the_cache(package: Path):
    cache = package / "runs" / "cache"
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert len([path for path in cache.iterdir() if path.name.startswith("chance-")]) == 3
    run_python(package, "-m", "unbraid", "run", "chance.toml", "--name", "second", "--quiet")
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()} == before
    first, second = ((package / "runs" / name / "scores.json").read_bytes() for name in ("first", "second"))
    assert first == second


def test_what_it_does_not_read_is_refused(package: Path):
    with pytest.raises(AssertionError, match="training was given, and an experiment of kind 'chance' has none"):
        run_python(package, "-m", "unbraid", "run", "chance.toml", "training.steps=10")
