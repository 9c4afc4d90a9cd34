"""The ledger: every claim with what was measured for it and the verdict, as plain data."""

from collections.abc import Sequence
from pathlib import Path

from unbraid.config import Tree, nearest
from unbraid.errors import Refusal
from unbraid.files import read_record
from unbraid.runs import Run
from unbraid.studies.claims import Claim, Part
from unbraid.studies.plans import Study, study_of
from unbraid.studies.results import Results
from unbraid.studies.rules import together
from unbraid.studies.seed_000 import SEED_000
from unbraid.studies.seed_001 import SEED_001
from unbraid.studies.seed_002 import SEED_002
from unbraid.studies.seed_003 import SEED_003

CLAIMS: dict[str, Claim] = {claim.id: claim for claim in (*SEED_000, *SEED_001, *SEED_002, *SEED_003)}

NOT_RUN = "not run"


def find_claims(names: Sequence[str]) -> list[Claim]:
    """The claims of these names, or all."""
    for name in names:
        if name not in CLAIMS:
            raise Refusal(f"there is no claim '{name}'; {nearest(name, CLAIMS)}")
    return [CLAIMS[name] for name in dict.fromkeys(names)] or list(CLAIMS.values())


def plan_claims(scale: str, runs: Path) -> list[tuple[Claim, Study]]:
    """Every claim with the study that tests it at this scale."""
    sharing: dict[tuple[str, tuple[str, ...]], list[Claim]] = {}
    for claim in CLAIMS.values():
        sharing.setdefault((claim.study, claim.overrides.get(scale, ())), []).append(claim)
    found = {key: study_of(claims, scale, runs) for key, claims in sharing.items()}
    return [(claim, found[claim.study, claim.overrides.get(scale, ())]) for claim in CLAIMS.values()]


def ledger(planned: Sequence[tuple[Claim, Study]]) -> list[Tree]:
    """An entry a claim, in their order; a claim whose study is not finished has no parts yet, and may say `why`."""
    read: dict[Path, Results] = {}
    return [_entry(claim, study, read) for claim, study in planned]


def _entry(claim: Claim, study: Study, read: dict[Path, Results]) -> Tree:
    told = {
        "id": claim.id,
        "seed": claim.seed,
        "statement": claim.statement,
        "published": claim.published,
        "study": claim.study,
        "title": study.config.get("title", ""),
        "run": str(study.run.path),
        "figures": list(claim.figures),
        "rules": [f"{part.what}: {part.rule.words}" for part in claim.parts],
    }
    if not study.finished:
        return {**told, "made": {}, "verdict": NOT_RUN, "why": study.lacks, "parts": []}
    if study.run.path not in read:
        read[study.run.path] = Results.read(study.run)
    try:
        parts = [_judge(part, read[study.run.path]) for part in claim.parts]
    except Refusal as problem:
        raise Refusal(
            f"claim {claim.id} cannot be judged by {study.run.path}: {problem}; if the code is newer, delete that run"
        ) from None
    verdict = together([part["verdict"] for part in parts])
    return {**told, "made": _made(study.run), "verdict": verdict, "why": "", "parts": parts}


def _made(run: Run) -> Tree:
    """When a study was run, by which code, and how long it took."""
    commit = read_record(run.path / "environment.json", "commit")["commit"]
    return {"began": run.facts()["began"][:10], "commit": commit, "minutes": run.status()["seconds"] / 60}


def _judge(part: Part, results: Results) -> Tree:
    measured = part.statistic.measure(results)
    return {
        "what": part.what,
        "metric": part.statistic.metric,
        "statistic": part.statistic.tree()["kind"],
        "value": measured.estimate.value,
        "interval": measured.estimate.interval,
        "chance": measured.chance,
        "pairs": measured.pairs,
        "note": measured.note,
        "rule": part.rule.words,
        "verdict": part.rule.verdict(measured),
    }
