"""Mirrors of a log in the trackers themselves: part of `make interop`, in the environment of `make bench`.

A sweep of four members is run with wandb (offline) and trackio; what they stored is read back and compared with the
log of the run directory, number by number. (TensorBoard is tested by `make test`.)
"""

# pyright: reportMissingImports=false
# (these live in the environment that `make bench` makes)

import json
import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import unbraid as ub
from unbraid.results import RunResults

Curves = dict[str, dict[int, dict[str, float]]]
"""By member and step."""
BLOCK, HEADER, FIRST_HEADER = 32_768, 7, 7
"""Of the log format of LevelDB, which wandb writes: a block's bytes, a chunk's header, the file's header."""
FULL, LAST = 1, 4
CONFIG = {
    "world": {"dimensions": 16, "n_features": 24},
    "dictionary": {"d_sae": 32},
    "mechanisms": {"sparsity": {"weight": [0.05, 0.2]}},
    "seed": [0, 1],
    "training": {"steps": 20},
    "evaluation": {"samples": 256},
    "checkpoints": {"log_every": 5},
    "mirrors": ["wandb", "trackio"],
}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACKIO_DIR"] = f"{folder}/trackio"
        results = ub.sweep(CONFIG, name="mirrored", runs=f"{folder}/runs", quiet=True)
        expected = logged(results)
        found = {"wandb": from_wandb(Path(folder, "runs", "mirrors")), "trackio": from_trackio()}
    worst = 0
    for name, curves in found.items():
        same = curves == expected
        numbers = sum(len(values) for steps in curves.values() for values in steps.values())
        print(f"{name:8} {len(curves)} members, {numbers} numbers: {'as logged' if same else 'NOT as logged'}")
        worst += not same
    return worst


def logged(results: RunResults) -> Curves:
    """What the run directory has."""
    curves: Curves = {}
    for stack in results.run.stacks():
        members = json.loads((stack / "members.json").read_text())
        for line in map(json.loads, (stack / "log.jsonl").read_text().splitlines()):
            lists = {"l0": line["l0"], "mmcs": line["mmcs"]}
            lists |= {f"terms/{name}": values for name, values in line["terms"].items()}
            for index, member in enumerate(members):
                weight, seed = member["setting"]["mechanisms.sparsity.weight"], member["replicate"]
                name = f"weight {weight:g} · seed {seed}".replace("/", "-")
                curves.setdefault(name, {})[line["step"]] = {key: values[index] for key, values in lists.items()}
    return curves


def from_wandb(folder: Path) -> Curves:
    from wandb.proto import wandb_internal_pb2

    curves: Curves = {}
    for file in folder.glob("wandb/offline-run-*/*.wandb"):
        name, steps = "", {}
        for content in records(file.read_bytes()):
            record: Any = wandb_internal_pb2.Record.FromString(content)
            name = record.run.display_name or name
            if record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                values = {key: json.loads(value) for key, value in items.items() if not key.startswith("_")}
                steps[json.loads(items["_step"])] = values
        curves[name.removeprefix("train-stack/")] = steps
    return curves


def records(data: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB after wandb's header: chunks of checksum, length and type, cut at blocks."""
    position, record = FIRST_HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
        _, length, kind = struct.unpack_from("<IHB", data, position)
        record += data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if kind in (FULL, LAST):
            yield record
            record = b""


def from_trackio() -> Curves:
    from trackio.sqlite_storage import SQLiteStorage

    curves: Curves = {}
    for name in SQLiteStorage.get_runs("unbraid"):
        lines = [dict(line) for line in SQLiteStorage.get_logs("unbraid", name)]
        numbers = {
            line["step"]: {key: value for key, value in line.items() if key not in ("step", "timestamp")}
            for line in lines
        }
        curves[name.removeprefix("mirrored/train-stack/")] = numbers
    return curves


if __name__ == "__main__":
    sys.exit(main())
