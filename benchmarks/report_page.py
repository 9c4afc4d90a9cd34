"""A page of 20 runs of three kinds: its size and the processor time it takes.

`python -m benchmarks.report_page RUNS` writes the page of the runs in a folder and prints both.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, answer

CONFIGS = Path(__file__).parents[1] / "tests" / "regression" / "configs"
KINDS = ("superposition", "constraints", "gauge", "pipeline")
RUNS = 20


def report_page() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        make_runs(runs)
        megabytes, seconds = map(float, answer("benchmarks.report_page", str(runs)).split())
    yield Figure(f"page of {RUNS} runs", megabytes, 8.0, "lower", "MB")
    yield Figure(f"page of {RUNS} runs, processor time", seconds, 20.0, "lower", "s")


def make_runs(runs: Path) -> None:
    """One run of each kind, copied under other names."""
    for kind in KINDS:
        words = (str(CONFIGS / f"{kind}.toml"), "--runs", str(runs), "--name", kind, "--quiet")
        answer("unbraid", "run", *words)
    for number in range(len(KINDS), RUNS):
        kind = KINDS[number % len(KINDS)]
        shutil.copytree(runs / kind, runs / f"{kind}-{number}")


def main(runs: Path) -> None:
    from unbraid.report.page import write_report
    from unbraid.storage.runs import all_runs

    path, begun = runs / "page.html", time.process_time()
    write_report(all_runs(runs), path)
    print(path.stat().st_size / 1e6, time.process_time() - begun)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
