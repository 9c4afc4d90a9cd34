"""The whole pipeline: the demo, the same again, one setting changed, twenty dictionaries on one model against each of
them alone, and how much of who and where is recovered.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

from benchmarks.figure import Figure
from unbraid.config import JsonDict, merge, read_toml, to_toml
from unbraid.pipeline.expand import expand
from unbraid.pipeline.run import run_stages
from unbraid.progress import Silent
from unbraid.signals import StopSignals
from unbraid.storage.runs import Run
from unbraid.studies.shipped import find_config

KS = range(1, 21)
"""Twenty dictionaries of as many kinds: no two of them are trained together."""
ASKED = {"person": "who", "place": "where"}


def pipeline() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        first, again = (_command(runs, "pipeline/demo", name) for name in ("first", "again"))
        changed = _command(runs, "pipeline/demo", "changed", "cases.adaptive-l1.mechanisms.adaptive_l1.target=0.08")
        yield Figure("demo, whole", first / 60, 3, "lower", "min")
        yield Figure("the same again / the first time", again / first, 0.04, "lower", "×")
        yield Figure("one of thirteen settings changed / the first time", changed / first, 2 / 13, "lower", "×")
        yield from _of_the_demo(Run.open(runs / "first"))
    yield _twenty()


def recovered() -> Iterator[Figure]:
    """Over five models, of the study of dropout: the setting chosen by the lesser of these very shares."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        _command(runs, "pipeline/dropout", "dropout", "--scale", "small")
        settings = {setting["label"]: setting["metrics"] for setting in Run.open(runs / "dropout").scores()["settings"]}
    label = max(settings, key=lambda name: min(_share(settings[name], "phi", factor) for factor in ASKED))
    yield Figure(f"accuracy, {label}", settings[label]["accuracy"]["value"], 0.99, "higher", "")
    for factor, asked in ASKED.items():
        share = _share(settings[label], "phi", factor)
        yield Figure(f"{asked}: one feature / probe, {label}", share, 0.8, "higher", "×")
        phi = settings[label][f"phi_{factor}"]
        yield Figure(f"{asked}: a random dictionary / probe", phi["chance"] / phi["ceiling"], 0.8, "lower", "×")


def _command(runs: Path, config: str, name: str, *changes: str) -> float:
    """Seconds of the command, imports and report and all."""
    began = time.monotonic()
    command = str(Path(sys.executable).with_name("unbraid"))
    run([command, "run", config, *changes, "--runs", str(runs), "--name", name, "--quiet"], check=True)
    return time.monotonic() - began


def _of_the_demo(demo: Run) -> Iterator[Figure]:
    settings = {setting["label"]: setting["metrics"] for setting in demo.scores()["settings"]}
    yield Figure("demo: accuracy of the model", settings["top-k"]["accuracy"]["value"], 0.99, "higher", "")
    for name, words in (("phi", "one feature"), ("phi_k_features", "at most four")):
        for factor, asked in ASKED.items():
            best = max(_share(metrics, name, factor) for metrics in settings.values())
            yield Figure(f"{asked}: best dictionary / probe, {words}", best, 0.8, "higher", "×")


def _share(metrics: JsonDict, name: str, factor: str) -> float:
    """The score over that of a linear probe."""
    score = metrics[f"{name}_{factor}"]
    return score["value"] / score["ceiling"]


def _twenty() -> Figure:
    config = read_toml(find_config("pipeline/demo"))
    base = {key: value for key, value in config.items() if key not in ("cases", "sweep", "mechanisms")}
    cases = {f"k-{k}": {"dictionary": {"activation": {"kind": "topk", "k": k}}} for k in KS}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        together = _seconds(Path(folder), "twenty", {**base, "cases": cases})
        _seconds(Path(other), "model", merge(base, {"training": {"steps": 300}}))  # now the model is in the cache
        alone = sum(_seconds(Path(other), name, merge(base, case)) for name, case in cases.items())
    return Figure("20 dictionaries and their model / 20 alone", together / alone, 1.1, "lower", "×")


def _seconds(runs: Path, name: str, config: JsonDict) -> float:
    began = time.monotonic()
    plan = expand(config, name)
    made = Run.create(runs, name, to_toml(plan.config), plan.facts())
    with StopSignals("the same command") as signals:
        run_stages(made, plan, Silent(), signals)
    return time.monotonic() - began
