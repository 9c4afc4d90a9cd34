"""Run the small configurations of a folder through the command line and keep their exact scores as one JSON file.

    python -m tests.regression.make --out FILE [--configs FOLDER] [--unbraid FOLDER] [--threads N] [NAME ...]

Knows of unbraid only its command line and the files it writes, so the same script runs old code and new. Comments at
the top of a configuration say what else there is to do:

    # needs real-data             what `make real-data` fetches
    # claims: ID ID               test these claims, with this configuration in place of ...
    # study: NAME                 ... the one that the claims name as their study
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REAL_DATA = ROOT / "real-data"
OF_A_METRIC = ("members", "value", "interval", "chance", "ceiling")
OF_A_PART = ("what", "metric", "statistic", "value", "interval", "chance", "pairs", "verdict")
TIMINGS = ("seconds",)


def make(configs: Iterable[Path], unbraid: Path, threads: int) -> dict[str, Any]:
    """The results of every configuration by its name."""
    configs = [path.resolve() for path in configs]
    with tempfile.TemporaryDirectory(prefix="unbraid-regression-") as home:
        commands = [_command(path, Path(home) / path.stem) for path in configs]
        listed = Path(home) / "commands.json"
        listed.write_text(json.dumps(commands))
        counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
        where = {"PYTHONPATH": str(unbraid.resolve()), "HF_HUB_OFFLINE": "1", "UNBRAID_TRACEBACK": "1"}
        environment = {**os.environ, **counts, **where}
        subprocess.run([sys.executable, HERE / "driver.py", listed], env=environment, cwd=home, check=True)
        return {path.stem: collect(Path(home) / path.stem) for path in configs}


def configs_of(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Those of these names, or all."""
    return [folder / f"{name}.toml" for name in names] or sorted(folder.glob("*.toml"))


def needs_real_data(config: Path) -> bool:
    return "# needs real-data" in config.read_text().splitlines()


def _command(config: Path, folder: Path) -> dict[str, Any]:
    """What runs a configuration in a new folder."""
    folder.mkdir()
    (folder / "real-data").symlink_to(REAL_DATA)
    lines = config.read_text().splitlines()
    comments = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    if "claims" not in comments:
        return {"folder": str(folder), "words": ["run", str(config), "--runs", "runs", "--name", "run", "--quiet"]}
    study = folder / comments["study"]  # a file of that name is found before the configuration that ships
    study.parent.mkdir(parents=True, exist_ok=True)
    study.write_text(config.read_text())
    return {"folder": str(folder), "words": ["claims", *comments["claims"].split(), "--runs", "runs", "--json"]}


def collect(folder: Path) -> dict[str, Any]:
    """What a command left: settings and differences of every table of scores, claims, checksums of weights."""
    ended = json.loads((folder / "ended.json").read_text())
    if ended["code"]:
        raise SystemExit(f"{folder.name}: unbraid ended with exit code {ended['code']}")
    found: dict[str, Any] = {"seconds": round(ended["seconds"], 1), "cpu_seconds": round(ended["cpu_seconds"], 1)}
    for path in sorted(folder.glob("runs/*/*.json")):
        if "settings" in (table := json.loads(path.read_text())):
            found["scores" if path.name == "scores.json" else "judged"] = _scores(table)
    if (printed := (folder / "printed.txt").read_text()).startswith("{"):
        found["claims"] = [_claim(entry) for entry in json.loads(printed)["claims"]]
    found["weights"] = _weights(folder)
    return found


def _scores(table: dict[str, Any]) -> dict[str, Any]:
    differences = [one for one in table["differences"] if one["metric"] not in TIMINGS]
    return {"settings": [_setting(one) for one in table["settings"]], "differences": differences}


def _setting(one: dict[str, Any]) -> dict[str, Any]:
    metrics = {
        name: {key: metric[key] for key in OF_A_METRIC if key in metric}
        for name, metric in one["metrics"].items()
        if name not in TIMINGS
    }
    return {"label": one["label"], "setting": one["setting"], "metrics": metrics}


def _claim(entry: dict[str, Any]) -> dict[str, Any]:
    parts = [{key: part[key] for key in OF_A_PART} for part in entry["parts"]]
    return {"id": entry["id"], "verdict": entry["verdict"], "parts": parts}


def _weights(folder: Path) -> list[dict[str, str]]:
    """Of every file of weights, wherever it is kept; copies count once."""
    found = {tuple(_checksums(path).items()) for path in folder.glob("**/weights.safetensors")}
    return [dict(sums) for sums in sorted(found)]


def _checksums(path: Path) -> dict[str, str]:
    """Of every array: shape, type and bytes."""
    return {
        name: hashlib.sha256(f"{array.shape} {array.dtype} ".encode() + array.tobytes()).hexdigest()
        for name, array in sorted(load_file(path).items())
    }


def write(results: dict[str, Any], path: Path) -> None:
    """One line a configuration; numbers as they are, to the last bit."""
    lines = [f"{json.dumps(name)}: {json.dumps(found, separators=(',', ':'))}" for name, found in results.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the configurations of a folder and keep their exact scores.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="configurations to run; by default all")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--configs", type=Path, default=HERE / "configs", metavar="FOLDER")
    parser.add_argument("--unbraid", type=Path, default=ROOT, metavar="FOLDER", help="the checkout to run")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    given = parser.parse_args()
    results = make(configs_of(given.configs, given.names), given.unbraid, given.threads)
    write(results, given.out)
    for name, found in results.items():
        print(f"{name:24} {found['seconds']:6.1f} s, CPU {found['cpu_seconds']:6.1f} s")


if __name__ == "__main__":
    main()
