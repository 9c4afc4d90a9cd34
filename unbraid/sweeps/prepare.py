"""From what a user asked for to the configuration a run keeps: overrides put in, defaults written out."""

from collections.abc import Sequence

from unbraid.config import Tree, merge, parse_override
from unbraid.sweeps.grid import expand, refuse_swept, resolve
from unbraid.sweeps.plan import refuse_too_large


def prepare(data: Tree, overrides: Sequence[str], source: str) -> Tree:
    """The configuration with these PATH=VALUE put in and every default written out."""
    changes: Tree = {}
    for override in overrides:
        changes = merge(changes, parse_override(override))
    data = merge(data, changes)
    refuse_swept(changes, data, source)
    resolved = resolve(data, source)
    refuse_too_large(expand(resolved, source))
    return resolved
