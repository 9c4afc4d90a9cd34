"""Imports point one way, down the house; and the two walls stand."""

import ast
from pathlib import Path

import pytest

import unbraid

PACKAGE = Path(unbraid.__file__).parent

LAYERS = [
    {"axes", "environment", "errors", "randomness"},
    {"config", "codes", "files"},
    {"members", "checkpoints", "runs", "progress", "signals"},
    {"capture"},
    {"worlds", "models"},
    {"constraints"},
    {"dictionaries"},
    {"coactivation"},
    {"mechanisms"},
    {"training"},
    {"metrics", "statistics"},
    {"judging", "repetition"},
    {"estimator", "scoring", "examining"},
    {"line"},
    {"sweeps"},
    {"studies"},
    {"reports"},
    {"working"},
    {"cli"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
ARRAYS_ONLY = {"axes", "metrics"}
DISK_ONLY = {"errors", "config", "files", "runs", "statistics", "reports"}


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
