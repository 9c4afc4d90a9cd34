"""What every run directory written by hand has in common: configuration, facts of its kind, environment, status."""

from pathlib import Path

from unbraid.config import JsonDict, to_toml
from unbraid.pipeline.kinds import KINDS
from unbraid.storage.files import sha256, write_bytes, write_sealed
from unbraid.storage.runs import FORMAT, Run

ENVIRONMENT = {"python": "3.11.7", "machine": "Linux", "packages": {"numpy": "2"}, "threads": 2, "commit": None}


def start_run(
    path: Path,
    kind: str,
    leading: str,
    config: JsonDict,
    state: str = "finished",
    sentence: str = "",
    environment: JsonDict = ENVIRONMENT,
) -> Run:
    """A run directory without scores; its sections are those that its kind names."""
    run, text = Run(path), to_toml(config).encode()
    facts = {"kind": kind, "leading": leading, "sections": list(KINDS[kind].sections)}
    card = {"format": FORMAT, "name": path.name, "began": "2026-01-02T03:04:05+00:00", "config_sha256": sha256(text)}
    write_bytes(path / "config.toml", text)
    write_sealed(path / "run.json", {**card, **facts})
    write_sealed(path / "environment.json", environment)
    run.set_status(state, sentence, 71.6)
    return run
