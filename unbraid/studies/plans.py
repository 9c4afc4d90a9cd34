"""Which runs a list of claims needs: claims whose study resolves to the same configuration share one run.

A ledger trains what its claims read and no more: of a study's cases and swept values, those that any claim about it
chooses. `unbraid run STUDY` trains them all.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbraid.config import REPLICATES, Tree, check, flatten, nearest, read_toml, to_toml
from unbraid.errors import Missing, Refusal
from unbraid.judging.settings import Judging, refuse_absent
from unbraid.runs import Run
from unbraid.studies import find_config
from unbraid.studies.claims import Claim
from unbraid.studies.results import Where, matches
from unbraid.sweeps.grid import combinations
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


def study_of(claims: Sequence[Claim], scale: str, runs: Path) -> Study:
    """The study of claims that share one, narrowed to what they read.

    Without what it needs on this machine it cannot be resolved, and its run has no name yet.
    """
    asked, path = asked_of(claims[0], scale)
    asked = narrowed(asked, [where for claim in claims for where in claim.selections()], str(path))
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


def narrowed(data: Tree, selections: Sequence[Where], source: str) -> Tree:
    """The configuration with only those cases and swept values that some selection chooses; all of the replicates.

    One in which nothing is chosen is left as it is: whoever judges by it says what is missing.
    """
    read = [
        chosen
        for chosen, tree in combinations(data, source)
        if any(matches({k: v for k, v in chosen.items() if k not in REPLICATES}, tree, where) for where in selections)
    ]
    if not read:
        return data
    cases = {name: case for name, case in data.get("cases", {}).items() if any(one["case"] == name for one in read)}
    swept = {
        path: [value for value in values if path in REPLICATES or any(one[path] == value for one in read)]
        for path, values in flatten(data.get("sweep", {})).items()
    }
    return {**data, **({"cases": cases} if cases else {}), **({"sweep": swept} if swept else {})}


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
