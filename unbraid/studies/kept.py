"""A ledger kept as JSON, so that it can be made in pieces: on several machines, or in several sittings.

What was judged before is taken from it as long as it still is the same: the same claim by the same rules, of a study
whose configuration has the same hash. Each study keeps its own date, commit and minutes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from unbraid.config import Tree
from unbraid.errors import Refusal
from unbraid.files import read_record, write_json
from unbraid.studies.ledger import NOT_RUN

SAME = ("study", "rules")


def read_kept(path: Path | None, scale: str) -> dict[str, Tree]:
    """The entries that were judged, by their claims; none where there is no such file yet."""
    if path is None or not path.exists():
        return {}
    found = read_record(path, "scale", "claims")
    if found["scale"] != scale:
        raise Refusal(f"{path} is a ledger of scale {found['scale']!r:.40}; accepted: --scale as it, or another file")
    return {entry["id"]: entry for entry in found["claims"] if entry["verdict"] != NOT_RUN}


def write_kept(path: Path, entries: Sequence[Tree], scale: str) -> None:
    """Runs are named without their folder, which is another one on another machine."""
    told = [{**entry, "run": Path(entry["run"]).name} for entry in entries]
    write_json(path, {"scale": scale, "claims": told})


def with_kept(entries: Sequence[Tree], kept: Mapping[str, Tree]) -> list[Tree]:
    """The entries, with those kept in place of those that were not run here."""
    return [old if (old := _judged_before(one, kept)) is not None else one for one in entries]


def _judged_before(entry: Tree, kept: Mapping[str, Tree]) -> Tree | None:
    old = kept.get(entry["id"])
    if entry["verdict"] != NOT_RUN or old is None or any(entry[name] != old[name] for name in SAME):
        return None
    now, then = Path(entry["run"]).name, Path(old["run"]).name
    unknown = entry["why"] and then.rpartition("-")[0] == now  # without a model or text here there is no hash yet
    return old if now == then or unknown else None
