"""Imports point one way, down the house; and the two walls stand."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unbraid

PACKAGE = Path(unbraid.__file__).parent

LAYERS = [
    {"axes", "environment", "errors", "randomness"},
    {"config", "codes", "files"},
    {"members", "schedule", "checkpoints", "runs", "progress", "signals"},
    {"capture"},
    {"worlds", "models"},
    {"constraints"},
    {"dictionaries", "training"},
    {"metrics"},
    {"statistics"},
    {"judging"},
    {"scoring", "examining"},
    {"line"},
    {"sweeps"},
    {"studies"},
    {"reports"},
    {"working"},
    {"cli"},
    {"__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
ARRAYS_ONLY = {"axes", "errors", "metrics"}
DISK_ONLY = {"errors", "config", "files", "runs", "metrics", "reports"}
FACTS = {"catalog", "intervals"}
"""The modules of metrics that reports may read: they need no torch."""


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Every room of ours a file imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {parts[1] for name in names if (parts := name.split("."))[0] == "unbraid" and len(parts) > 1}


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_room_has_a_layer():
    assert {room(path) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path):
    here = room(path)
    upward = {other for other in imported_rooms(path) if other != here and RANK[other] >= RANK[here]}
    assert not upward, f"{here} imports {upward}"


@pytest.mark.parametrize(("walled", "allowed"), [("metrics", ARRAYS_ONLY), ("reports", DISK_ONLY)])
def test_walls_stand(walled: str, allowed: set[str]):
    for path in FILES:
        if room(path) == walled:
            assert imported_rooms(path) <= allowed, path
            if walled == "reports":
                assert "torch" not in path.read_text(), path
                assert set(re.findall(r"unbraid\.metrics(?: import |\.)(\w+)", path.read_text())) <= FACTS, path


def test_what_reports_read_of_metrics_needs_no_torch():
    names = ", ".join(f"unbraid.metrics.{name}" for name in sorted(FACTS))
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
