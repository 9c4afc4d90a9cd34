"""The ledger as a table in Markdown, to be committed where figures and pages are too much: verdicts, hashes, dates."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from unbraid.config import JsonDict
from unbraid.reports.ledger import VERDICTS, marks, numbers, probabilities, tally
from unbraid.storage.files import write_bytes

HEAD = ("claim", "", "ours", "95 % interval", "chance", "p", "q", "verdict")
STUDY_HEAD = ("study", "configuration", "began", "commit", "minutes")
MISSING = "–"


def write_table(entries: Sequence[JsonDict], scale: str, path: Path) -> Path:
    write_bytes(path, ledger_table(entries, scale).encode())
    return path


def ledger_table(entries: Sequence[JsonDict], scale: str, note: str = "") -> str:
    """A row a claim, by the part that decides it; then a row a study, with the hash of its configuration.

    `note` stands at the top: what a reader must know of a ledger that was not made by the code beside it.
    """
    written = f"Written by `unbraid claims --scale {scale}`; how to read it: [the ledger of claims](claims-ledger.md)."
    lines = ["# Claims and verdicts", "", *([note, ""] if note else []), f"{written} {tally(entries)}"]
    for source in dict.fromkeys(entry["source"] for entry in entries):
        rows = [_claim(entry) for entry in entries if entry["source"] == source]
        lines += ["", f"## {source}", "", *_table(HEAD, rows)]
    runs = {Path(entry["run"]).name: entry for entry in entries}
    lines += ["", "## Studies", "", *_table(STUDY_HEAD, [_study(entry) for entry in runs.values()])]
    return "\n".join(lines) + "\n"


def _claim(entry: JsonDict) -> list[str]:
    said = " ".join((entry["statement"], *marks(entry)))
    return [f"`{entry['id']}`", said, *numbers(entry), *probabilities(entry), VERDICTS[entry["verdict"]]]


def _study(entry: JsonDict) -> list[str]:
    """When it was run, by which code, and how long it took; of one that was not run only its name."""
    study = entry["study"]
    named = f"`{Path(study).stem if study.endswith('.toml') else study}`"
    if not (made := entry["made"]):
        return [named, MISSING, MISSING, MISSING, MISSING]
    configuration, commit = Path(entry["run"]).name.rpartition("-")[2], str(made["commit"])[:9]
    return [named, f"`{configuration}`", made["began"], f"`{commit}`", f"{made['minutes']:.1f}"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield _line(["---"] * len(head))
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
