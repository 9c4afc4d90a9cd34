"""Which runs a list of claims needs: claims whose study resolves to the same configuration share one run."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from unbraid.config import Tree, nearest, read_toml, to_toml
from unbraid.errors import Refusal
from unbraid.runs import Run
from unbraid.studies import find_config
from unbraid.studies.claims import Claim
from unbraid.sweeps.prepare import prepare
from unbraid.sweeps.scales import at_scale

SCALES = ("small", "standard")
"""What a ledger can be made at; a study that has no table for a scale runs as it stands."""


@dataclass(frozen=True)
class Study:
    """A configuration to run, and the run directory that is its own as long as nothing in it changes."""

    config: Tree
    run: Run

    @property
    def finished(self) -> bool:
        """Trained, scored and reported."""
        return (self.run.path / "report.html").is_file() and self.run.status()["state"] == "finished"

    def opened(self) -> Run:
        """The run as it was left, or a new one."""
        if self.run.path.is_dir():
            return Run.open(self.run.path)
        return Run.create(self.run.path.parent, self.run.name, to_toml(self.config))


def study_of(claim: Claim, scale: str, runs: Path) -> Study:
    path = find_config(claim.study)
    data = read_toml(path)
    data = at_scale(data, scale if "scales" in data else None, str(path))
    config = prepare(data, claim.overrides.get(scale, ()), str(path))
    return Study(config, Run(runs / f"claims-{path.stem}-{scale}-{fingerprint(config)}"))


def fingerprint(config: Tree) -> str:
    """Eight digits that change with any setting but the title."""
    told = {key: value for key, value in config.items() if key != "title"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]


def missing(studies: Iterable[Study]) -> list[Study]:
    """Those still to run or to finish, each once."""
    return list({study.run.path: study for study in studies if not study.finished}.values())


def checked_scale(scale: str) -> str:
    if scale not in SCALES:
        raise Refusal(f"--scale is {scale!r:.40}; {nearest(scale, SCALES)}")
    return scale
