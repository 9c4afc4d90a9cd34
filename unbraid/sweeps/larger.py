"""Compare each dictionary with the next larger one that is otherwise its equal: what both found is likely real.

The comparison needs weights of several stacks, so it is made when all are trained, and kept in `stacks/NN/larger.json`.
"""

import json
from collections.abc import Sequence
from itertools import pairwise

import torch

from unbraid.axes import Float, Tensor
from unbraid.files import read_arrays, write_json
from unbraid.metrics.recovery import expected_best, mmcs_with
from unbraid.runs import Run
from unbraid.sweeps.grid import Member

Place = tuple[int, int]
"""A stack, and a position in it."""


def compare_with_larger(run: Run, stacks: Sequence[Sequence[Member]]) -> None:
    """Write the comparison of every stack that has anything larger beside it, where it is not there yet."""
    partners = next_larger(stacks)
    for index, group in enumerate(stacks):
        path = run.stack(index) / "larger.json"
        found = [partners.get((index, position)) for position in range(len(group))]
        if path.is_file() or not any(found):
            continue
        world = group[0].experiment.world
        chances = [
            expected_best(stacks[partner[0]][partner[1]].experiment.dictionary.features, world.dimensions)
            for partner in found
            if partner is not None
        ]
        card = {
            "values": {"mmcs_larger": _compare(run, index, found)},
            "chance": {"mmcs_larger": sum(chances) / len(chances)},
            "ceiling": {"mmcs_larger": 1.0},
        }
        write_json(path, card)


def next_larger(stacks: Sequence[Sequence[Member]]) -> dict[Place, Place]:
    """For each member the one with the next more features and everything else the same."""
    families: dict[str, list[tuple[int, Place]]] = {}
    for index, group in enumerate(stacks):
        for position, member in enumerate(group if group[0].experiment.is_trained else ()):
            tree = member.experiment.tree()
            features = tree["dictionary"].pop("features")
            families.setdefault(json.dumps(tree, sort_keys=True), []).append((features, (index, position)))
    ordered = [sorted(family) for family in families.values()]
    return {own[1]: larger[1] for family in ordered for own, larger in pairwise(family)}


def _compare(run: Run, index: int, partners: Sequence[Place | None]) -> list[float | None]:
    """The MMCS of each member of a stack with its partner; None where it has none."""
    own = _directions(run, index)
    others = {stack: _directions(run, stack) for stack in sorted({place[0] for place in partners if place})}
    return [
        None if place is None else float(mmcs_with(own[position][None], others[place[0]][place[1]][None]))
        for position, place in enumerate(partners)
    ]


def _directions(run: Run, index: int) -> Float[Tensor, "m f d"]:
    return torch.from_numpy(read_arrays(run.stack(index) / "weights.safetensors")["decoder"])
