"""The figures of the spine: sampling, start-up, the quickstart, and the whole check on a clean clone."""

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, medians

ROOT = Path(__file__).parents[1]


def sampling() -> Iterator[Figure]:
    """A batch of 4096 of the default world, against drawing dense uniforms for every feature and multiplying."""
    import torch

    from unbraid import Superposition

    world, positions = Superposition(), itertools.count()
    probabilities, size = world.probabilities.float(), (4096, world.n_features)

    def dense() -> torch.Tensor:
        return ((torch.rand(size) < probabilities) * torch.rand(size)) @ world.directions

    ours, rival = medians(lambda: world.batch(next(positions), size[0]), dense, repeats=31)
    yield Figure("sampling: dense draw / ours", rival / ours, 10, "higher", "×")


def startup() -> Iterator[Figure]:
    """Importing the package, and what fits and scores, against importing torch; and the time of `unbraid --help`."""
    for script in ("import unbraid", "from unbraid import Superposition, Dictionary, Sparsity, fit, score"):
        ours, torch = medians(lambda script=script: _python(script), lambda: _python("import torch"), repeats=5)
        yield Figure(f"{script.removeprefix('from unbraid ')[:32]} / import torch", ours / torch, 2, "lower", "×")
    command = Path(sys.executable).with_name("unbraid")
    help_seconds, _ = medians(lambda: _call(command, "--help"), lambda: None, repeats=9)
    yield Figure("unbraid --help", help_seconds, 0.5, "lower", "s")


def quickstart() -> Iterator[Figure]:
    """The quickstart, report included: its time, and the recovery of its settings over five seeds."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        command = Path(sys.executable).with_name("unbraid")
        _call(command, "run", ROOT / "configs" / "quickstart.toml", "--runs", folder, "--name", "q", "-q")
        minutes = (time.monotonic() - began) / 60
        settings = json.loads(Path(folder, "q", "scores.json").read_text())["settings"]
    yield Figure("quickstart, report included", minutes, 3, "lower", "min")
    for setting in settings:
        mmcs = setting["metrics"]["mmcs"]
        yield Figure(f"quickstart MMCS, {setting['label']}", mmcs["value"], 0.9, "higher", "")
        yield Figure(f"quickstart seeds, {setting['label']}", len(mmcs["members"]), 5, "higher", "")
        yield Figure(f"quickstart chance of MMCS, {setting['label']}", mmcs["chance"], 0.25, "lower", "")


def check() -> Iterator[Figure]:
    """`.ci/run` on a clean clone of the last commit, set-up included."""
    with tempfile.TemporaryDirectory() as folder:
        _call("git", "clone", "--quiet", ROOT, Path(folder, "clone"))
        began = time.monotonic()
        _call("bash", Path(folder, "clone", ".ci", "run"))
        yield Figure("make check on a clean clone", (time.monotonic() - began) / 60, 12, "lower", "min")


def _python(script: str) -> None:
    _call(sys.executable, "-c", script)


def _call(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)
