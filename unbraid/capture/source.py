"""What shards are made of: so that whoever needs them and does not find them can have them made."""

import hashlib
import json
from pathlib import Path

from pydantic import Field

from unbraid.capture.manifest import FILE, Dtype, Manifest, read_manifest
from unbraid.config import Record
from unbraid.errors import Missing, Refusal
from unbraid.progress import Watcher

HOME = Path("activations")


class Source(Record):
    """The arguments of `unbraid capture`; paths are relative to the folder one is in."""

    model: str
    text: str
    site: str
    tokens: int | None = Field(default=None, ge=1)
    dtype: Dtype = "float32"
    context: int | None = Field(default=None, ge=2)

    @property
    def folder(self) -> Path:
        """Where they go if nobody says: another place for other settings."""
        settings = hashlib.sha256(json.dumps(self.tree(), sort_keys=True).encode()).hexdigest()[:8]
        return Path(f"{default_folder(self.model, self.site)}-{settings}")


def default_folder(model: str, where: str) -> Path:
    """activations/MODEL-SITE, by the last part of the model's name."""
    return HOME / f"{Path(model).name or 'model'}-{where.replace('/', '-')}"


def gather(source: Source, folder: Path, watcher: Watcher, how_to_go_on: str | None = None) -> None:
    """Capture what is not in the folder yet; refuses a folder that holds something else."""
    manifest = _finished(folder)
    if manifest is not None and not _may_be_more(source, manifest):
        refuse_another_source(source, manifest, folder)
        return
    from unbraid.capture.capturing import Capturing  # here, because a world that has its shards needs neither
    from unbraid.capture.command import run_capture

    settings = Capturing(tokens=source.tokens, dtype=source.dtype, context=source.context)
    run_capture(source.model, Path(source.text), source.site, folder, settings, watcher, how_to_go_on)


def refuse_uncaptured(source: Source, folder: Path) -> None:
    """Say that shards have to be made, and from what, where there are none."""
    if _finished(folder) is None:
        absent = next((path for path in (source.model, source.text) if not Path(path).exists()), "")
        raise Missing(
            f"{folder} does not hold the activations of {source.model} at {source.site} yet; accepted: `unbraid run`, "
            "which captures them first",
            absent,
        )


def refuse_another_source(source: Source, manifest: Manifest, folder: Path) -> None:
    for name in ("model", "site", "text", "dtype", "context", "tokens"):
        asked, found = getattr(source, name), getattr(manifest.origin, name)
        if asked is not None and asked != found and not (name == "tokens" and found < asked):
            raise Refusal(
                f"{folder} holds activations with {name} {found!r:.60}, and world.capture has {asked!r:.60}; accepted: "
                "world.path left out, or another folder"
            )


def _finished(folder: Path) -> Manifest | None:
    manifest = read_manifest(folder) if (folder / FILE).is_file() else None
    return manifest if manifest is not None and manifest.is_finished else None


def _may_be_more(source: Source, manifest: Manifest) -> bool:
    """Fewer tokens than asked for are all that a short text has, or an older capture: only the text can tell."""
    return source.tokens is not None and manifest.origin.tokens < source.tokens
