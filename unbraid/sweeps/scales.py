"""One configuration at several sizes: each table `[scales.NAME]` holds what that scale changes of the rest.

[scales.small]           # changes nothing: the base
[scales.standard]
training.steps = 6000
"""

from unbraid.config import Tree, merge, nearest
from unbraid.errors import Refusal


def scales_of(data: Tree, source: str) -> dict[str, Tree]:
    """What each scale changes, in the order they are written."""
    scales = data.get("scales", {})
    if not isinstance(scales, dict):
        raise Refusal(f"{source}: scales is {scales!r:.60}; accepted: tables of settings, as [scales.small]")
    for name, changes in scales.items():
        if not isinstance(changes, dict):
            raise Refusal(f"{source}: scales.{name} is {changes!r:.60}; accepted: a table, as [scales.{name}]")
        for key in ("scale", "scales"):
            if key in changes:
                raise Refusal(f"{source}: scales.{name} sets '{key}', which a scale cannot; accepted: other settings")
    return scales


def at_scale(data: Tree, name: str | None, source: str) -> Tree:
    """The configuration at this scale, which it names; without one the base, which a scale with no changes names."""
    scales = scales_of(data, source)
    base = {key: value for key, value in data.items() if key != "scales"}
    if name is None:
        unchanged = [scale for scale, changes in scales.items() if not changes]
        return {**base, "scale": unchanged[0]} if unchanged else base
    if not scales:
        raise Refusal(f"{source} was asked for at scale '{name}' and has no scales; accepted: no --scale")
    if name not in scales:
        raise Refusal(f"{source} has no scale '{name}'; {nearest(name, scales)}")
    return {**merge(base, scales[name]), "scale": name}
