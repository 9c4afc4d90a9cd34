"""From what a user asked for to the configuration a run keeps: overrides put in, defaults written out.

A world of activations that says what they are made of need not have them yet: whoever can wait has them captured first.
"""

import json
from collections.abc import Sequence

from unbraid.capture.source import gather
from unbraid.config import Tree, check, merge, parse_override
from unbraid.judging.settings import Judging, refuse_absent
from unbraid.progress import Watcher
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import combinations, expand, refuse_swept, resolve
from unbraid.sweeps.plan import refuse_too_large
from unbraid.worlds.activations import folder_of, source_of


def prepare(data: Tree, overrides: Sequence[str], source: str) -> Tree:
    """The configuration with these PATH=VALUE put in and every default written out."""
    resolved = resolve(overridden(data, overrides, source), source)
    refuse_too_large(expand(resolved, source))
    return resolved


def overridden(data: Tree, overrides: Sequence[str], source: str) -> Tree:
    """The configuration with these PATH=VALUE put in."""
    changes: Tree = {}
    for override in overrides:
        changes = merge(changes, parse_override(override))
    data = merge(data, changes)
    refuse_swept(changes, data, source)
    return data


def gather_shards(data: Tree, source: str, watcher: Watcher, how_to_go_on: str) -> None:
    """Capture the activations that the worlds of a configuration are made of, where they are not there yet."""
    trees = [tree for _, tree in combinations(data, source)]
    worlds = {json.dumps(tree.get("world"), default=str): tree.get("world") for tree in trees}
    made_of = [(source_of(world), world) for world in worlds.values() if isinstance(world, dict)]
    asked = [(one, folder_of(world, one)) for one, world in made_of if one is not None]
    if asked:
        _refuse_the_rest(trees, source)
    for one, folder in asked:
        gather(one, folder, watcher, how_to_go_on)


def _refuse_the_rest(trees: Sequence[Tree], source: str) -> None:
    """What is wrong in all but the world is said before anybody waits for its activations."""
    for tree in trees:
        check(Experiment, {key: value for key, value in tree.items() if key not in ("world", "judging")}, source)
    if isinstance(judging := trees[0].get("judging"), dict):
        refuse_absent(check(Judging, judging, f"{source} [judging]"))
