"""Carry out what a page of docs/ says on a copy of the package: write its files, add its lines, run its commands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import unbraid

ROOT = Path(__file__).parents[1]
PACKAGE = Path(unbraid.__file__).parent


def code_blocks(page: str, language: str) -> list[str]:
    """The blocks of one language, in the page's order."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


def copy_package(folder: Path) -> Path:
    """A copy of the package in a new folder, to be changed; with what numba has compiled of it, which takes minutes."""
    shutil.copytree(PACKAGE, folder / "unbraid", ignore=shutil.ignore_patterns("*.pyc*", "*.tmp.*"))
    shutil.copytree(ROOT / "configs", folder / "configs")
    return folder


def insert_after(path: Path, pattern: str, lines: str) -> None:
    """Put the lines of the page after the one line that matches."""
    changed, places = re.subn(pattern, lambda line: f"{line[0]}\n{lines.rstrip()}", path.read_text(), flags=re.M)
    assert places == 1, pattern
    path.write_text(changed)


def run_python(folder: Path, *words: str) -> str:
    """What a process prints that imports the package of this folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {**inherited, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
