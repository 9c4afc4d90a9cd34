"""What docs/adding-a-metric.md says, done on a copy of the package: function, record, line, version, page, run."""

import json
import math
import re
from pathlib import Path

import pytest

from tests.pages import code_blocks, copy_package, insert_after, run_python

THE_FUNCTION, THE_LINE, THE_VERSION, THE_EXAMPLE = code_blocks("adding-a-metric.md", "python")
(THE_RECORD,) = code_blocks("adding-a-metric.md", "toml")
NAME = "effective_features"
SMALL = (
    *("world.dimensions=16", "world.n_features=32", "dictionary.d_sae=32"),
    *("training.steps=20", "training.batch=64", "evaluation.samples=1024"),
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_package(tmp_path_factory.mktemp("metric"))
    for file, addition in (("firing.py", THE_FUNCTION), ("catalog.toml", THE_RECORD)):
        with (folder / "unbraid" / "metrics" / file).open("a") as end:
            end.write(addition)
    insert_after(folder / "unbraid/evaluation/dictionaries.py", r'^            "dead": .*$', THE_LINE)
    raise_version(folder / "unbraid/pipeline/dictionary_stages.py")
    run_python(folder, "-m", "unbraid", "run", "quickstart", *SMALL, "--name", "small", "--quiet")
    return folder


def raise_version(path: Path) -> None:
    """Put the line of the page in place of the stage's; it must be the next version."""
    old = re.search(r'(?<=    kind = "evaluate-stack"\n)    version = (\d+)\n', path.read_text())
    assert old is not None
    assert f"    version = {int(old[1]) + 1}\n" == THE_VERSION
    path.write_text(path.read_text()[: old.start()] + THE_VERSION + path.read_text()[old.end() :])


def test_the_example_of_the_page(package: Path):
    (package / "example.py").write_text(THE_EXAMPLE)
    printed = run_python(package, "example.py")
    assert [float(word.strip(" ,")) for word in printed.split("[")[1].split("]")[0].split(",")] == [4.0, 1.0]


def test_the_page_of_metrics_has_an_entry(package: Path):
    page = run_python(package, "-m", "unbraid.metrics.catalog")
    entry = page.split(f"#### `{NAME}`\n")[1].split("\n#")[0]
    assert "**Effective features**: over how many features firing is spread" in entry
    assert "Chance: random dictionaries of the same size" in entry
    assert page.index("## Dictionaries\n") < page.index(f"`{NAME}`") < page.index("## Sizes and tracking")


def test_a_run_has_it_with_interval_chance_ceiling_and_difference(package: Path):
    scores = json.loads((package / "runs" / "small" / "scores.json").read_text())
    for setting in scores["settings"]:
        metric = setting["metrics"][NAME]
        assert metric["interval"] is not None
        assert 1 < metric["value"] <= 32
        assert 1 < metric["chance"] <= 32
        assert 1 < metric["ceiling"] <= 32
        assert all(math.isfinite(value) for value in metric["members"])
    assert NAME in {difference["metric"] for difference in scores["differences"]}
    assert "Effective features" in (package / "runs" / "small" / "report.html").read_text()


def test_the_version_is_in_the_key_of_the_stage(package: Path):
    stages = [path for path in (package / "runs" / "cache").iterdir() if path.name.startswith("evaluate-stack-")]
    assert [json.loads((stage / "checksums.json").read_text())["version"] for stage in stages] == [
        int(THE_VERSION.split()[-1])
    ]
