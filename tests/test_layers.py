"""Imports point one way, down the house; the two walls stand; and every room has a name that says what is in it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unbraid

PACKAGE = Path(unbraid.__file__).parent

LAYERS = [
    {"axes", "errors", "randomness"},
    {"config", "devices"},
    {"codes"},
    {"storage", "members", "mesh", "schedule", "progress", "signals"},
    {"activations"},
    {"worlds"},
    {"models"},
    {"dictionaries"},
    {"metrics"},
    {"evaluation"},
    {"pipeline"},
    {"studies"},
    {"results"},
    {"figures"},
    {"report"},
    {"explorer"},
    {"battery"},
    {"work"},
    {"cli"},
    {"__main__"},
]
"""The rooms of the design, in its order, with the small modules at the top of the package where they belong."""
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
ARRAYS_ONLY = {"axes", "errors", "metrics"}
DISK_ONLY = {"errors", "config", "storage", "metrics", "results", "figures", "report", "explorer"}
SHOWS = {"results", "figures", "report", "explorer"}
FACTS = {"catalog", "intervals"}
"""The modules of metrics that reports may read: they need no torch."""
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> set[str]:
    """Every name of ours a file imports, also inside functions, with the path to it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports name their rooms"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == "unbraid"}


def imported_rooms(path: Path) -> set[str]:
    return {parts[1] for name in imported_names(path) if len(parts := name.split(".")) > 1}


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_room_has_a_layer():
    assert {room(path) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path):
    here = room(path)
    upward = {other for other in imported_rooms(path) if other != here and RANK[other] >= RANK[here]}
    assert not upward, f"{here} imports {upward}"


def test_metrics_never_see_a_trainer():
    for path in FILES:
        if room(path) == "metrics":
            assert imported_rooms(path) <= ARRAYS_ONLY, path


def test_what_shows_results_never_sees_a_model():
    for path in FILES:
        if room(path) in SHOWS:
            assert imported_rooms(path) <= DISK_ONLY, path
            assert "import torch" not in path.read_text(), path
            metrics = {name.split(".")[2] for name in imported_names(path) if name.startswith("unbraid.metrics.")}
            assert metrics <= FACTS, path


@pytest.mark.parametrize("names", [sorted(f"metrics.{name}" for name in FACTS), ["report.page", "report.ledger"]])
def test_reports_and_what_they_read_of_metrics_need_no_torch(names: list[str]):
    code = f"import sys, {', '.join(f'unbraid.{name}' for name in names)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_room_is_for_whatever_is_left():
    for path in [PACKAGE, *PACKAGE.rglob("*")]:
        words = set(re.split(r"[_\W]+", path.stem.lower()))
        assert path.suffix not in ("", ".py") or not words & VAGUE, path
