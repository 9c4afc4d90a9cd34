"""Which runs a list of claims needs: claims whose study resolves to the same configuration share one run."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from unbraid.config import Tree, check, nearest, read_toml, to_toml
from unbraid.errors import Missing, Refusal
from unbraid.judging.settings import Judging, refuse_absent
from unbraid.runs import Run
from unbraid.studies import find_config
from unbraid.studies.claims import Claim
from unbraid.sweeps.prepare import overridden, prepare
from unbraid.sweeps.scales import at_scale

SCALES = ("small", "standard")
"""What a ledger can be made at; a study that has no table for a scale runs as it stands."""


@dataclass(frozen=True)
class Study:
    """A configuration to run, and the run directory that is its own as long as nothing in it changes.

    `lacks` says what has to be fetched or captured before it can run.
    """

    config: Tree
    run: Run
    lacks: str = ""

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
    """Without what it needs on this machine it cannot be resolved, and its run has no name yet."""
    asked, path = asked_of(claim, scale)
    try:
        config = prepare(asked, [], str(path))
    except Missing as problem:
        return Study(asked, Run(runs / f"claims-{path.stem}-{scale}"), str(problem))
    study = Study(config, Run(runs / f"claims-{path.stem}-{scale}-{fingerprint(config)}"))
    return study if study.finished else replace(study, lacks=_absent(config))


def asked_of(claim: Claim, scale: str) -> tuple[Tree, Path]:
    """The claim's study at this scale, as it is written, and the file it is in."""
    path = find_config(claim.study)
    data = read_toml(path)
    data = at_scale(data, scale if "scales" in data else None, str(path))
    return overridden(data, claim.overrides.get(scale, ()), str(path)), path


def _absent(config: Tree) -> str:
    try:
        if "judging" in config:
            refuse_absent(check(Judging, config["judging"], "judging"))
    except Missing as problem:
        return str(problem)
    return ""


def fingerprint(config: Tree) -> str:
    """Eight digits that change with any setting but the title."""
    told = {key: value for key, value in config.items() if key != "title"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:8]


def missing(studies: Iterable[Study]) -> list[Study]:
    """Those still to run or to finish that can, each once."""
    return list({study.run.path: study for study in studies if not study.finished and not study.lacks}.values())


def checked_scale(scale: str) -> str:
    if scale not in SCALES:
        raise Refusal(f"--scale is {scale!r:.40}; {nearest(scale, SCALES)}")
    return scale
