"""What docs/adding-a-mechanism.md says, done on a copy of the package: file, registry, battery, run, notebook."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pages import ROOT, code_blocks, copy_package, insert_after, run_python
from unbraid.dictionaries import Dictionary, Stack

THE_FILE, THE_IMPORT, THE_LINE, THE_EXAMPLE, THE_NOTEBOOK = code_blocks("adding-a-mechanism.md", "python")
(THE_CONFIGURATION,) = code_blocks("adding-a-mechanism.md", "toml")
NAME = "decoder_orthogonality"
BATTERY = "tests/dictionaries/mechanisms/test_battery.py"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and the battery with the mechanism in them."""
    folder = copy_package(tmp_path_factory.mktemp("mechanism"))
    mechanisms = folder / "unbraid" / "dictionaries" / "mechanisms"
    (mechanisms / f"{NAME}.py").write_text(THE_FILE)
    insert_after(mechanisms / "__init__.py", r"^BUILT_IN: .*$", THE_LINE)
    insert_after(mechanisms / "__init__.py", r"^from unbraid\.config .*$", THE_IMPORT)
    (folder / BATTERY).parent.mkdir(parents=True)
    for file in ("pyproject.toml", "tests/conftest.py", "tests/checking.py", BATTERY):
        shutil.copy(ROOT / file, folder / file)
    insert_after(folder / BATTERY, r"^EXAMPLES = \{$", THE_EXAMPLE)
    return folder


def test_it_keeps_all_the_promises_of_the_battery(package: Path):
    chosen = f"{NAME} or every_registered"
    printed = run_python(package, "-m", "pytest", "-p", "no:cacheprovider", BATTERY, "-k", chosen)
    passed = int(re.findall(r"(\d+) passed", printed)[0])
    assert passed >= 25, printed
    assert "failed" not in printed


def test_the_run_of_the_page_shows_what_it_did(package: Path):
    (package / "page.toml").write_text(THE_CONFIGURATION)
    quick = ["training.steps=120", "evaluation.samples=1024"]
    printed = run_python(package, "-m", "unbraid", "run", "page.toml", *quick, "--quiet")
    run = package / printed.strip().splitlines()[-1]
    scores = json.loads((run / "scores.json").read_text())
    verdicts = {(entry["setting"], entry["metric"]): entry["verdict"] for entry in scores["differences"]}
    assert [verdicts[index, "redundancy"] for index in (1, 2)] == ["lower", "lower"]
    line = json.loads((run / "stacks" / "00" / "log.jsonl").read_text().splitlines()[-1])
    costs = torch.tensor(line["terms"][NAME]).view(3, 5)
    assert (costs[0] == 0).all()
    assert (costs[1:] > 0).all()


def test_its_cost_is_that_of_a_sum_on_paper():
    """Three rows in a plane: the first two at 60°, the third opposite to the first: it is near no other."""
    scope: dict[str, type] = {}
    exec(THE_FILE, scope)
    stack = Stack.start(Dictionary(d_sae=3), 2, [0])
    rows = torch.tensor([[[1.0, 0.0], [0.5, 0.75**0.5], [-1.0, 0.0]]])
    stack = stack.with_parameters({**stack.parameters(), "decoder": rows})
    cost = scope["DecoderOrthogonality"](weight=2.0).penalty(None, {}, stack, None)
    torch.testing.assert_close(cost, torch.tensor([2.0 * (0.25 + 0.25 + 0.0) / 3]))


def test_the_notebook_of_the_page_runs():
    scope: dict[str, Any] = {}
    exec(THE_FILE, scope)
    exec(THE_NOTEBOOK.replace("steps=660", "steps=60").replace("8192", "512"), scope)
    with_it, without = (scope[side].values["redundancy"] for side in ("with_it", "without"))
    assert (with_it < without).all()
