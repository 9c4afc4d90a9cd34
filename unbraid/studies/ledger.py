"""The ledger: every claim with what was measured for it and the verdict, as plain data; and the file that keeps it.

A ledger can be made in pieces, on several machines or in several sittings. A verdict is taken from its file as long as
it is of the same claim by the same rules, and of a study whose configuration has the same hash. The file carries a
checksum: one that is not exactly as it was written is refused. One with a `note` is a record of other code: it can be
read, and is neither used nor overwritten.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from unbraid.config import JsonDict, suggest
from unbraid.errors import UserError
from unbraid.storage.files import json_bytes, read_json, write_bytes
from unbraid.storage.runs import Run
from unbraid.studies.claims import Claim, Part, load_claims
from unbraid.studies.plans import Study, plan_study
from unbraid.studies.results import Results
from unbraid.studies.shipped import current_name
from unbraid.studies.verdicts import HOLDS, Evidence, Measurement, Verdict, judge

CLAIMS = load_claims()

NOT_RUN = "not run"
FORMAT = 2
"""Of the ledger's file; raised when its keys or their meaning change."""
READABLE = (1, FORMAT)
"""Formats that can be shown. A file of format 1 holds verdicts by other rules, so none is taken from it."""
_ACCEPTED = (
    f"accepted: a ledger of format {FORMAT} as `unbraid claims --ledger` wrote it; restore it, or name another file"
)


def find_claims(ids: Sequence[str]) -> list[Claim]:
    """The claims with these ids, or all."""
    for claim_id in ids:
        if (now := current_name(claim_id)) in CLAIMS:
            raise UserError(f"the claim `{claim_id}` is now `{now}`")
        if claim_id not in CLAIMS:
            raise UserError(f"there is no claim '{claim_id}'; {suggest(claim_id, CLAIMS)}")
    return [CLAIMS[claim_id] for claim_id in dict.fromkeys(ids)] or list(CLAIMS.values())


def plan_claims(scale: str, runs: Path) -> list[tuple[Claim, Study]]:
    """Every claim with the study that tests it at this scale."""
    sharing: dict[tuple[str, tuple[str, ...]], list[Claim]] = {}
    for claim in CLAIMS.values():
        sharing.setdefault((claim.study, claim.overrides.get(scale, ())), []).append(claim)
    studies = {key: plan_study(claims, scale, runs) for key, claims in sharing.items()}
    return [(claim, studies[claim.study, claim.overrides.get(scale, ())]) for claim in CLAIMS.values()]


def ledger_entries(planned: Sequence[tuple[Claim, Study]]) -> list[JsonDict]:
    """An entry a claim, in their order; a claim whose study is not finished has no parts yet, and may say `why`."""
    read: dict[Path, Results] = {}
    return [_entry(claim, study, read) for claim, study in planned]


def _entry(claim: Claim, study: Study, read: dict[Path, Results]) -> JsonDict:
    described = {
        "id": claim.id,
        "source": claim.source,
        "statement": claim.statement,
        "quote": claim.quote,
        "exploratory": claim.exploratory,
        "published": claim.published,
        "study": claim.study,
        "title": study.config.get("title", ""),
        "run": str(study.run.path),
        "combine": claim.combine,
        "rules": [f"{part.what}: {part.rule.words(part.smallest_effect)}" for part in claim.parts],
        "smallest": [part.smallest_effect for part in claim.parts],
        "controls": [part.control for part in claim.parts],
        "replicates": {"needed": claim.replicates, "planned": study.replicates},
    }
    if not study.finished:
        nothing = {"verdict": NOT_RUN, "p": None, "q": None}
        return {**described, "made": {}, **nothing, "why": study.lacks, "parts": []}
    if study.run.path not in read:
        study.run.check_complete(derived=True)
        read[study.run.path] = Results.read(study.run)
    try:
        measured = [part.measure.measure(read[study.run.path]) for part in claim.parts]
    except UserError as problem:
        raise UserError(
            f"claim {claim.id} cannot be judged by {study.run.path}: {problem}; if the code is newer, delete that run"
        ) from None
    verdict, parts = judge_claim(claim, measured)
    why = "; ".join(f"Control: {part['what']}: {part['verdict']}" for part in parts if _fails_as_control(part))
    decided = {"verdict": verdict.verdict, "p": verdict.p, "q": None}
    return {**described, "made": _made(study.run), **decided, "why": why, "parts": parts}


def judge_claim(claim: Claim, measured: Sequence[Measurement]) -> tuple[Verdict, list[JsonDict]]:
    """The verdict on a claim, and its parts with theirs, in the claim's order."""
    evidence = [
        part.rule.evidence(measurement, part.smallest_effect, claim.claimed)
        for part, measurement in zip(claim.parts, measured, strict=True)
    ]
    both = list(zip(claim.parts, evidence, strict=True))
    controls = [found for part, found in both if part.control]
    verdict = judge([found for part, found in both if not part.control], claim.combine, controls)
    words, checked = iter(verdict.parts), iter(verdict.controls)
    said = [next(checked if part.control else words) for part in claim.parts]
    return verdict, [_part(*part) for part in zip(claim.parts, measured, evidence, said, strict=True)]


def _fails_as_control(part: JsonDict) -> bool:
    return part["control"] and part["verdict"] != HOLDS


def _made(run: Run) -> JsonDict:
    """When a study was run, by which code, and how long it took."""
    commit = run.environment()["commit"]
    return {"began": run.facts()["began"][:10], "commit": commit, "minutes": run.status()["seconds"] / 60}


def _part(part: Part, measurement: Measurement, evidence: Evidence, verdict: str) -> JsonDict:
    return {
        "what": part.what,
        "control": part.control,
        "metric": part.measure.metric,
        "statistic": part.measure.to_dict()["kind"],
        "value": measurement.estimate.value,
        "interval": measurement.estimate.interval,
        "chance": measurement.chance,
        "pairs": measurement.pairs,
        "replicates": list(measurement.values),
        "note": measurement.note,
        "rule": part.rule.words(part.smallest_effect),
        "smallest": part.smallest_effect,
        "p": evidence.p,
        "verdict": verdict,
    }


def with_q(entries: Sequence[JsonDict]) -> list[JsonDict]:
    """The entries with q, the share of false ones to expect among claims decided at its p: Benjamini and Hochberg's.

    Over all claims that were run, whatever their verdict.
    """
    from scipy.stats import false_discovery_control  # takes half a second, and only a ledger asks

    run = [index for index, entry in enumerate(entries) if entry["p"] is not None]
    q = false_discovery_control([entries[index]["p"] for index in run]).tolist() if run else []
    found = dict(zip(run, q, strict=True))
    return [{**entry, "q": found.get(index)} for index, entry in enumerate(entries)]


def write_ledger_file(path: Path, entries: Sequence[JsonDict], scale: str, note: str = "") -> None:
    """Runs are named without their folder, which is another one on another machine."""
    claims = [{**entry, "run": Path(entry["run"]).name} for entry in entries]
    content = {"format": FORMAT, "scale": scale, **({"note": note} if note else {}), "claims": claims}
    write_bytes(path, _file_bytes(content))


def read_ledger_file(path: Path) -> JsonDict:
    """Its `scale`, `note` and `claims`; refused if it is of another format, or not byte for byte as it was written."""
    content = read_json(path)
    if not isinstance(content, dict) or "sha256" not in content:
        raise UserError(f"{path} is damaged or no ledger; {_ACCEPTED}")
    if content.get("format") not in READABLE:
        raise UserError(f"{path} is a ledger of the unknown format {content.get('format')!r:.40}; {_ACCEPTED}")
    if not _is_whole(path, {name: value for name, value in content.items() if name != "sha256"}):
        raise UserError(f"{path} is damaged: its content does not have the checksum that stands in it; {_ACCEPTED}")
    return {"note": "", **content}


def _is_whole(path: Path, content: JsonDict) -> bool:
    try:
        return path.read_bytes() == _file_bytes(content)
    except (UnicodeEncodeError, RecursionError):  # half a character, or thousands of brackets: JSON, but not ours
        return False


def _file_bytes(content: JsonDict) -> bytes:
    """The file with its checksum, which is of the content as JSON with sorted keys and no spaces."""
    plain = json.loads(json_bytes(content))
    canonical = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return json_bytes({**plain, "sha256": hashlib.sha256(canonical).hexdigest()})


def earlier_verdicts(path: Path | None, scale: str) -> dict[str, JsonDict]:
    """The entries of a ledger's file that have a verdict, by their claims; none where there is no such file yet.

    A file with a note is refused: its verdicts are of other configurations.
    """
    if path is None or not path.exists():
        return {}
    content = read_ledger_file(path)
    if content["scale"] != scale:
        raise UserError(
            f"{path} is a ledger of scale {content['scale']!r:.40}; accepted: --scale as it, or another file"
        )
    if content["note"]:
        raise UserError(
            f"{path} is a record of other configurations, so nothing is taken from it or written to it; accepted: "
            f"another file. It says: {content['note']}"
        )
    if content["format"] != FORMAT:
        raise UserError(f"{path} is a ledger of format {content['format']}, of verdicts by other rules; {_ACCEPTED}")
    return {entry["id"]: entry for entry in content["claims"] if entry["verdict"] != NOT_RUN}


def reuse_verdicts(entries: Sequence[JsonDict], earlier: Mapping[str, JsonDict]) -> list[JsonDict]:
    """The entries, with earlier ones in place of those that were not run here and are still the same."""
    return [earlier[entry["id"]] if _is_same(entry, earlier.get(entry["id"])) else entry for entry in entries]


def _is_same(entry: JsonDict, earlier: JsonDict | None) -> bool:
    if entry["verdict"] != NOT_RUN or earlier is None:
        return False
    if any(entry[key] != earlier[key] for key in ("study", "rules", "combine")):
        return False
    run, earlier_run = Path(entry["run"]).name, Path(earlier["run"]).name
    unresolved = bool(entry["why"]) and earlier_run.rpartition("-")[0] == run  # without its model a run has no hash yet
    return run == earlier_run or unresolved
