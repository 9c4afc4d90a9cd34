"""What docs/adding-a-mechanism.md says, done on a copy of the package: file, registry, battery, run, notebook."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import unbraid
from unbraid.dictionaries import Dictionary, Stack

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "adding-a-mechanism.md").read_text()
THE_FILE, THE_IMPORT, THE_LINE, THE_EXAMPLE, THE_NOTEBOOK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(THE_CONFIGURATION,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
NAME = "decoder_orthogonality"
BATTERY = "tests/dictionaries/mechanisms/test_battery.py"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and the battery with the mechanism in them; all else is where it was."""
    folder = tmp_path_factory.mktemp("house")
    mechanisms = folder / "unbraid" / "dictionaries" / "mechanisms"
    link(Path(unbraid.__file__).parent, folder / "unbraid", but="dictionaries")
    link(Path(unbraid.__file__).parent / "dictionaries", mechanisms.parent, but="mechanisms")
    shutil.copytree(Path(unbraid.__file__).parent / "dictionaries" / "mechanisms", mechanisms)
    (mechanisms / f"{NAME}.py").write_text(THE_FILE)
    put_in(mechanisms / "__init__.py", r"^MECHANISMS: .*$", THE_LINE)
    put_in(mechanisms / "__init__.py", r"^from unbraid\.config .*$", THE_IMPORT)
    (folder / BATTERY).parent.mkdir(parents=True)
    for file in ("pyproject.toml", "tests/conftest.py", "tests/checking.py", BATTERY):
        shutil.copy(ROOT / file, folder / file)
    put_in(folder / BATTERY, r"^EXAMPLES = \{$", THE_EXAMPLE)
    return folder


def link(source: Path, target: Path, but: str) -> None:
    """A folder with the contents of another, but for one of its folders."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.name not in (but, "__pycache__"):
            (target / entry.name).symlink_to(entry)


def put_in(path: Path, after: str, lines: str) -> None:
    """The lines of the page, after the one line that matches."""
    changed, places = re.subn(after, lambda found: f"{found[0]}\n{lines.rstrip()}", path.read_text(), flags=re.M)
    assert places == 1, after
    path.write_text(changed)


def python(house: Path, *words: str) -> str:
    """What a process prints that has the package of that house."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {**kept, "PYTHONPATH": str(house), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *words], cwd=house, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_keeps_all_the_promises_of_the_battery(house: Path):
    chosen = f"{NAME} or every_registered"
    said = python(house, "-m", "pytest", "-p", "no:cacheprovider", BATTERY, "-k", chosen)
    kept = int(re.findall(r"(\d+) passed", said)[0])
    assert kept >= 25, said
    assert "failed" not in said


def test_the_run_of_the_page_shows_what_it_did(house: Path):
    (house / "page.toml").write_text(THE_CONFIGURATION)
    program = "from unbraid.cli import main; main()"
    quick = ["training.steps=120", "scoring.samples=1024"]
    said = python(house, "-c", program, "run", "page.toml", *quick, "--quiet")
    run = house / said.strip().splitlines()[-1]
    scores = json.loads((run / "scores.json").read_text())
    verdicts = {(one["setting"], one["metric"]): one["verdict"] for one in scores["differences"]}
    assert [verdicts[index, "redundancy"] for index in (1, 2)] == ["lower", "lower"]
    line = json.loads((run / "stacks" / "00" / "log.jsonl").read_text().splitlines()[-1])
    costs = torch.tensor(line["terms"][NAME]).view(3, 5)
    assert (costs[0] == 0).all()
    assert (costs[1:] > 0).all()


def test_its_cost_is_that_of_a_sum_on_paper():
    """Three rows in a plane: the first two at 60°, the third opposite to the first: it is near nobody."""
    scope: dict[str, type] = {}
    exec(THE_FILE, scope)
    stack = Stack.start(Dictionary(d_sae=3), 2, [0])
    rows = torch.tensor([[[1.0, 0.0], [0.5, 0.75**0.5], [-1.0, 0.0]]])
    stack = stack.with_parameters({**stack.parameters(), "decoder": rows})
    cost = scope["DecoderOrthogonality"](weight=2.0).penalty(None, stack, None)
    torch.testing.assert_close(cost, torch.tensor([2.0 * (0.25 + 0.25 + 0.0) / 3]))


def test_the_notebook_of_the_page_runs():
    scope: dict[str, object] = {}
    exec(THE_FILE, scope)
    exec(THE_NOTEBOOK.replace("steps=660", "steps=60").replace("8192", "512"), scope)
    with_it, without = (scope[side].values["redundancy"] for side in ("with_it", "without"))
    assert (with_it < without).all()
