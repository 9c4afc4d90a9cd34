"""Print one line a figure, `name  measured  goal  met|short`, and keep them in benchmarks/latest.json."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    adaptive_tau,
    architectures,
    capture,
    cold_start,
    distributed,
    explorer,
    feature_index,
    gauge,
    grid,
    learning,
    mechanisms,
    memory,
    models,
    pipeline,
    report_page,
    spine,
    stories,
    synth,
    training,
)
from benchmarks.figure import Benchmark, Figure

BENCHMARKS: dict[str, Benchmark] = {
    "sampling": spine.sampling,
    "stories": stories.stories,
    "synth": synth.synth,
    "startup": spine.startup,
    "quickstart": spine.quickstart,
    "speed": training.speed,
    "planted": training.planted,
    "topk": training.topk,
    "architectures": architectures.architectures,
    "memory": memory.memory,
    "mechanisms": mechanisms.mechanisms,
    "adaptive_tau": adaptive_tau.adaptive_tau,
    "cold_start": cold_start.cold_start,
    "distributed": distributed.distributed,
    "grid": grid.grid,
    "capture": capture.capture,
    "models": models.models,
    "gauge": gauge.gauge,
    "learning": learning.learning,
    "pipeline": pipeline.pipeline,
    "recovered": pipeline.recovered,
    "explorer": explorer.explorer,
    "feature_index": feature_index.feature_index,
    "report_page": report_page.report_page,
    "check": spine.check,
}


def main() -> int:
    chosen = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        print(f"there is no benchmark '{unknown[0]}'; accepted: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    for name in chosen:
        for figure in BENCHMARKS[name]():
            print(figure, flush=True)
            figures.append(figure)
    kept = [{**asdict(figure), "met": figure.met} for figure in figures]
    Path(__file__).with_name("latest.json").write_text(json.dumps(kept, indent=1) + "\n")
    return 0


sys.exit(main())
