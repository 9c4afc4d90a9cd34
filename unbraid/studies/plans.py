"""Which runs a list of claims needs: claims whose study resolves to the same configuration share one run.

A ledger trains what its claims read and no more: of a study's cases and swept values, those that any claim about it
selects. `unbraid run STUDY` trains them all.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unbraid.config import REPLICATES, JsonDict, check, flatten, read_toml, suggest, to_toml
from unbraid.config.sweep import at_scale, overridden
from unbraid.errors import Missing, UserError
from unbraid.evaluation.language_model.config import LanguageModelEvaluation, check_texts_exist
from unbraid.pipeline.expand import Plan, expand, written_members
from unbraid.storage.runs import Run
from unbraid.studies.claims import Claim
from unbraid.studies.results import Where, matches
from unbraid.studies.shipped import config_name, find_config

SCALES = ("small", "standard")
"""What a ledger can be made at; a study that has no table for a scale runs as it stands."""


@dataclass(frozen=True)
class Study:
    """A configuration to run, and its run directory: the same one as long as nothing in the configuration changes.

    `lacks` says what has to be fetched or captured before it can run.
    """

    config: JsonDict
    run: Run
    lacks: str = ""
    plan: Plan | None = None
    """The configuration, expanded; None where what it needs is not on this machine."""

    @property
    def finished(self) -> bool:
        """Trained, scored and reported."""
        return self.run.is_finished

    @property
    def replicates(self) -> int | None:
        """How many replicates every setting has; None where that is not known without what it lacks."""
        if self.plan is None:
            return None
        settings = Counter(json.dumps(member.setting) for member in self.plan.members)
        return min(settings.values())

    def open_run(self) -> Run:
        """The run as it was left, or a new one."""
        if self.run.path.is_dir():
            return Run.open(self.run.path, to_finish=True)
        assert self.plan is not None, "a study that lacks something is not run"
        return Run.create(self.run.path.parent, self.run.name, to_toml(self.config), self.plan.facts())


def plan_study(claims: Sequence[Claim], scale: str, runs: Path) -> Study:
    """The study of claims that share one, narrowed to what they read.

    Without what it needs on this machine it cannot be resolved, and its run has no name yet.
    """
    written, path = study_config(claims[0], scale)
    written = narrow(written, [where for claim in claims for where in claim.selections()], str(path))
    name = f"claims-{config_name(path).replace('/', '-')}-{scale}"
    try:
        plan = expand(written, str(path))
    except Missing as problem:
        return Study(written, Run(runs / name), str(problem))
    study = Study(plan.config, Run(runs / f"{name}-{fingerprint(plan.config)}"), plan=plan)
    return study if study.finished else replace(study, lacks=_lacking(plan.config))


def study_config(claim: Claim, scale: str) -> tuple[JsonDict, Path]:
    """The claim's study at this scale, as it is written, and the file it is in."""
    path = find_config(claim.study)
    data = read_toml(path)
    data = at_scale(data, scale if "scales" in data else None, str(path))
    return overridden(data, claim.overrides.get(scale, ()), str(path)), path


def narrow(data: JsonDict, selections: Sequence[Where], source: str) -> JsonDict:
    """The configuration with only those cases and swept values that some selection reads; all of the replicates.

    One in which nothing is selected is left as it is: the ledger says what is missing.
    """
    read = [
        setting
        for setting, tree in written_members(data, source)
        if any(matches({k: v for k, v in setting.items() if k not in REPLICATES}, tree, where) for where in selections)
    ]
    if not read:
        return data
    read_cases = {setting.get("case") for setting in read}
    cases = {name: case for name, case in data.get("cases", {}).items() if name in read_cases}
    swept = {
        path: [value for value in values if path in REPLICATES or any(setting[path] == value for setting in read)]
        for path, values in flatten(data.get("sweep", {})).items()
    }
    return {**data, **({"cases": cases} if cases else {}), **({"sweep": swept} if swept else {})}


def _lacking(config: JsonDict) -> str:
    """What the language model or its labels lack here, in a sentence."""
    try:
        if (asked := config.get("evaluation", {}).get("language_model")) is not None:
            check_texts_exist(check(LanguageModelEvaluation, asked, "evaluation.language_model"))
    except Missing as problem:
        return str(problem)
    return ""


def fingerprint(config: JsonDict) -> str:
    """Eight digits that change with any setting but the title."""
    settings = {key: value for key, value in config.items() if key != "title"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def unfinished(studies: Iterable[Study]) -> list[Study]:
    """Those still to run or to finish that can, each once."""
    return list({study.run.path: study for study in studies if not study.finished and not study.lacks}.values())


def check_scale(scale: str) -> str:
    if scale not in SCALES:
        raise UserError(f"--scale is {scale!r:.40}; {suggest(scale, SCALES)}")
    return scale
