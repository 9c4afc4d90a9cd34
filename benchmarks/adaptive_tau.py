"""The course of an adaptive τ and of the cosine of the pairs it steers, on the default planted world.

    python -m benchmarks.adaptive_tau [RUN]        of a finished run of `mechanisms/tau-course`, or of a new one

Targets: the source's .1, and the same mean of the planted truth's own codes, also with four times the weight. Inside
its bounds [.01, .5] τ should hold the mean near the target; where it stays at a bound it cannot: that is a finding.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, answer
from unbraid.config import JsonDict
from unbraid.storage.checkpoints import read_log
from unbraid.storage.runs import Run

SHOWN = (0, 1, 3, 7, 15, 23, 29)
"""Lines of the log that are printed; there is one every 50 steps."""
LAST = 6
"""Lines at the end that are averaged."""
NEAR = 0.05
"""How far from its target the mean cosine may end."""


def adaptive_tau() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as runs:
        path = answer("unbraid", "run", "mechanisms/tau-course", "--runs", runs, "--quiet").split()[-1]
        yield from course(Run.open(Path(path)))


def course(run: Run) -> Iterator[Figure]:
    """Print τ and the mean cosine of every seed over training; give how far from its target each case ended."""
    cases = run.config()["cases"]
    for setting in run.scores()["settings"]:
        case, score = setting["setting"]["case"], setting["metrics"]["selected_pair_cosine"]
        print(f"{case}: cosine of selected pairs {score['value']:.3f} in use, {score['ceiling']:.3f} in the truth")
        if "adaptive_tau" in cases[case].get("mechanisms", {}):
            target = cases[case]["mechanisms"]["adaptive_tau"]["target"]
            ends = [_print_course(run, member) for member in setting["members"]]
            away = abs(sum(ends) / len(ends) - target)
            yield Figure(f"{case}: mean cosine of selected pairs, away from {target}", away, NEAR, "lower", "")


def _print_course(run: Run, member: JsonDict) -> float:
    """One seed's; gives the mean cosine at the end."""
    lines, index = read_log(run.stack(member["stack"]) / "log.jsonl"), member["member"]
    taus, means = ([line["mechanisms"]["adaptive_tau"][name][index] for line in lines] for name in ("tau", "mean"))
    shown = [f"{lines[i]['step']}: {taus[i]:.2f} {means[i]:.2f}" for i in SHOWN if i < len(lines)]
    print(f"  seed {member['seed']}, step: τ, mean cosine   {'   '.join(shown)}")
    return sum(means[-LAST:]) / LAST


if __name__ == "__main__":
    for figure in course(Run.open(Path(sys.argv[1]))) if len(sys.argv) > 1 else adaptive_tau():
        print(figure)
