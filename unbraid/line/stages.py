"""Where the stages of a line are kept: each in a folder named by a hash of all that it depends on, and so shared.

    model-HASH          a run directory: the world, the model, its constraints, how it was taught, its seed
    activations-HASH    shards: that model, the site and the stories
    dictionary-HASH     what a stack of dictionaries or baselines left: those activations, and all its settings

The hash knows the settings, the versions of this package and of torch and the edition of the scores, not the code:
after a change that changes results, delete the folder `stages`. A folder appears whole, under its name, or not at all.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from unbraid.config import Tree

HOME = "stages"
MODEL = ("world", "model", "constraints", "teaching", "examining")
"""What decides a model and what is measured of it."""
DICTIONARY, BASELINE = ("dictionary", "training", "mechanisms"), ("baseline", "data")
"""What decides each, beside what it learns from, its seed, and what is measured of it."""
EDITION = 2
"""Of what is measured of a stack: raised when a score changes its meaning, so that older ones are not taken for it."""
DONE = "scores.json"
"""Whoever has this is done: it is written last."""
LOGS = ".jsonl"
OWN = ("members.json", "model.json")
"""What a run writes of a stack whether or not the stack was kept: how it is called there, and its model's scores."""


def model_tree(tree: Tree) -> Tree:
    """The configuration of the model of a line."""
    return {**{name: tree[name] for name in MODEL if name in tree}, "seed": tree["capture"]["seed"]}


def model_folder(home: Path, tree: Tree) -> Path:
    return home / f"model-{fingerprint(model_tree(tree))}"


def shards_folder(home: Path, tree: Tree) -> Path:
    """Of the activations at a site; how they are normalised is up to whoever reads them."""
    seen = {name: tree["capture"][name] for name in ("site", "stories")}
    return home / f"activations-{fingerprint([model_tree(tree), seen])}"


def stack_folder(home: Path, trees: Sequence[Tree], shown: Sequence[int]) -> Path:
    """Of a stack with these members; `shown` are those of which a run keeps more than of the rest."""
    source = [shards_folder(home, trees[0]).name, trees[0]["capture"]["normalise"]]
    names = (*(BASELINE if "baseline" in trees[0] else DICTIONARY), "scoring", "seed")
    members = [{name: tree[name] for name in names} for tree in trees]
    return home / f"dictionary-{fingerprint([EDITION, source, members, list(shown)])}"


def fingerprint(settings: object) -> str:
    return hashlib.sha256(json.dumps([*_versions(), settings], sort_keys=True).encode()).hexdigest()[:16]


@cache
def _versions() -> tuple[str, ...]:
    """Of whatever a stage depends on beside its settings; looking them up takes milliseconds."""
    return tuple(metadata.version(name) for name in ("unbraid", "torch"))


def take(kept: Path, folder: Path) -> bool:
    """Bring what was kept of a stack into its place in a run, the last thing last; whether there was anything."""
    if not kept.is_dir():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(kept.iterdir(), key=lambda path: path.name == DONE):
        _share(path, folder / path.name)
    return True


def keep(folder: Path, kept: Path) -> None:
    """Keep what a finished stack left; not its checkpoints, which nobody needs any more."""
    aside = kept.with_name(f".{kept.name}.{os.getpid()}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for path in folder.iterdir():
        if path.is_file() and path.name not in OWN and not path.name.startswith("."):
            _share(path, aside / path.name)
    with suppress(OSError):  # another run may have kept the same meanwhile
        aside.rename(kept)
    shutil.rmtree(aside, ignore_errors=True)


def _share(source: Path, target: Path) -> None:
    """The same file under a second name, where the disk allows it; a log, which is written on, and others as a copy."""
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    aside.unlink(missing_ok=True)
    try:
        if source.suffix == LOGS:
            raise OSError
        os.link(source, aside)
    except OSError:
        shutil.copyfile(source, aside)
    aside.replace(target)
