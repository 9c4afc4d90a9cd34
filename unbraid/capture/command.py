"""What `unbraid capture` does: load, look up the site, and keep the shards while a person watches."""

import shlex
from pathlib import Path

from unbraid.capture.capturing import Capturing, capture
from unbraid.capture.models import load
from unbraid.capture.shards import Shards
from unbraid.capture.sites import site
from unbraid.capture.source import default_folder
from unbraid.capture.texts import documents
from unbraid.errors import Refusal
from unbraid.progress import Watcher
from unbraid.signals import StopSignals


def run_capture(
    model: str,
    text: Path,
    where: str,
    folder: Path | None,
    settings: Capturing,
    watcher: Watcher,
    how_to_go_on: str | None = None,
) -> Shards:
    """Bad input is refused before the model is loaded, where it can be; by default the same command goes on."""
    folder = folder or default_folder(model, where)
    if folder.is_file():
        raise Refusal(f"--out {folder} is a file; accepted: a new folder, or one with a capture to go on with")
    next(documents(text))
    with watcher, StopSignals(how_to_go_on or again(model, text, where, folder, settings)):
        watcher.stage(f"loading {model}")
        loaded = load(model)
        return capture(loaded, site(loaded, where), text, folder, settings, watcher)


def again(model: str, text: Path, where: str, folder: Path, settings: Capturing) -> str:
    """The command that goes on, as it can be pasted into a shell."""
    given = {"tokens": settings.tokens, "dtype": settings.dtype, "context": settings.context, "batch": settings.batch}
    options = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    words = ["unbraid", "capture", model, str(text), "--site", where, *options, "--out", str(folder)]
    return shlex.join(words)
