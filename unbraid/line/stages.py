"""Where the stages of a line are kept: each in a folder named by a hash of all that it depends on, and so shared.

    model-HASH          a run directory: the world, the model, its constraints, how it was taught, its seed
    activations-HASH    shards: that model, the site and the stories
    dictionary-HASH     what a stack of dictionaries or baselines left: those activations, and all its settings

The hash knows the settings and the version of this package, not its code: after a change that changes results, delete
the folder `stages`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from unbraid.config import Tree

HOME = "stages"
MODEL = ("world", "model", "constraints", "teaching", "examining")
"""What decides a model and what is measured of it."""
DICTIONARY, BASELINE = ("dictionary", "training", "mechanisms"), ("baseline", "data")
"""What decides each, beside what it learns from, its seed, and what is measured of it."""
DONE = "scores.json"
"""Whoever has this is done: it is written last."""
OWN = ("members.json", "model.json")
"""What a run writes of a stack whether or not the stack was kept: how it is called there, and its model's scores."""


def model_tree(tree: Tree) -> Tree:
    """The configuration of the model of a line."""
    return {**{name: tree[name] for name in MODEL if name in tree}, "seed": tree["capture"]["seed"]}


def model_folder(home: Path, tree: Tree) -> Path:
    return home / f"model-{fingerprint(model_tree(tree))}"


def shards_folder(home: Path, tree: Tree) -> Path:
    """Of the activations at a site; how they are normalised is up to whoever reads them."""
    seen = {name: value for name, value in tree["capture"].items() if name != "normalise"}
    return home / f"activations-{fingerprint([model_tree(tree), seen])}"


def stack_folder(home: Path, trees: Sequence[Tree], shown: Sequence[int]) -> Path:
    """Of a stack with these members; `shown` are those of which a run keeps more than of the rest."""
    source = [shards_folder(home, trees[0]).name, trees[0]["capture"]["normalise"]]
    names = (*(BASELINE if "baseline" in trees[0] else DICTIONARY), "scoring", "seed")
    members = [{name: tree[name] for name in names} for tree in trees]
    return home / f"dictionary-{fingerprint([source, members, list(shown)])}"


def fingerprint(settings: object) -> str:
    told = json.dumps([metadata.version("unbraid"), settings], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def take(kept: Path, folder: Path) -> bool:
    """Bring what was kept of a stack into its place in a run, the last thing last; whether there was anything."""
    if not (kept / DONE).is_file():
        return False
    for path in _in_order(kept):
        _link(path, folder / path.name)
    return True


def keep(folder: Path, kept: Path) -> None:
    """Keep what a finished stack left; not its checkpoints, which nobody needs any more."""
    if not (kept / DONE).is_file():
        for path in _in_order(folder):
            if path.name not in OWN:
                _link(path, kept / path.name)


def _in_order(folder: Path) -> Iterator[Path]:
    """The files of a stack, that which makes it count as done last."""
    yield from sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.name == DONE)


def _link(source: Path, target: Path) -> None:
    """The same file under a second name where the disk allows it, else a copy: files are replaced, never changed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.part")
    aside.unlink(missing_ok=True)
    try:
        os.link(source, aside)
    except OSError:
        shutil.copyfile(source, aside)
    aside.replace(target)
