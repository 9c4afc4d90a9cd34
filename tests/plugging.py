"""Plugins in tests: a process that has loaded none, before and after; and files that note when they are run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unbraid.config import plugins
from unbraid.metrics import catalog

HEAT = '''"""Warms features up; notes in a file that it was run."""
import os

import unbraid as ub
from unbraid.config import PerMemberFloat

with open(os.environ["CANARY"], "a") as file:
    file.write("run\\n")


class Heat(ub.Mechanism):
    """Large encoders cost."""

    weight: PerMemberFloat = 0.1
    """How much they cost."""

    def penalty(self, forward, memory, stack, signals):
        return self.weight * stack.encoder.square().mean((1, 2))
'''


@contextmanager
def no_plugins() -> Iterator[None]:
    """In here none is loaded at first, and what is loaded is gone in the end, as in a process of its own."""
    registries = plugins.registries()
    places = [plugins._by_module, plugins._by_class, catalog.METRICS, *registries]
    before = [dict(place) for place in places]  # pyright: ignore
    modules = set(sys.modules)
    for registry in registries:
        for name in set(registry) - registry.built_in:
            del registry[name]
    plugins._by_module.clear()
    plugins._by_class.clear()
    try:
        yield
    finally:
        for place, kept in zip(places, before, strict=True):
            place.clear()
            place.update(kept)  # pyright: ignore
        for name in set(sys.modules) - modules:
            if name.startswith("unbraid_"):
                del sys.modules[name]


def write_heat(folder: Path, name: str = "heat.py", text: str = HEAT) -> Path:
    """A plugin's file, which notes in `$CANARY` that it is run."""
    path = folder / name
    path.write_text(text)
    return path


def times_run(folder: Path) -> int:
    """How often such files were run, where the canary is in this folder."""
    canary = folder / "canary"
    return len(canary.read_text().splitlines()) if canary.exists() else 0
