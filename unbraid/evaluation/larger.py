"""Compare each dictionary with the next larger one that is otherwise its equal: what both have is likely real.

The comparison needs weights of several stacks, so it is made when all are trained, and kept in `stacks/NN/larger.json`.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch

from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict
from unbraid.metrics.recovery import expected_best, mmcs_with
from unbraid.storage.files import read_arrays, write_json

StackConfigs = Sequence[JsonDict]
"""The configurations of the members of a stack; empty where no dictionary is trained."""
MemberIndex = tuple[int, int]
"""A stack, and a member of it."""


def compare_with_larger(folders: Sequence[Path], stacks: Sequence[StackConfigs], dimensions: Sequence[int]) -> None:
    """Write the comparison of every stack that has anything larger beside it, where it is not there yet.

    Parameters
    ----------
    folders
        The folder of each stack, with its `weights.safetensors`.
    stacks
        The configurations of each stack's members.
    dimensions
        The length of the vectors that each stack encodes.
    """
    partners = next_larger(stacks)
    for index, folder in enumerate(folders):
        larger = [partners.get((index, position)) for position in range(len(stacks[index]))]
        if (folder / "larger.json").is_file() or not any(larger):
            continue
        chances = [
            expected_best(stacks[partner[0]][partner[1]]["dictionary"]["d_sae"], dimensions[index])
            for partner in larger
            if partner is not None
        ]
        scores = {
            "values": {"mmcs_larger": _compare(folders, index, larger)},
            "chance": {"mmcs_larger": sum(chances) / len(chances)},
            "ceiling": {"mmcs_larger": 1.0},
        }
        write_json(folder / "larger.json", scores)


def next_larger(stacks: Sequence[StackConfigs]) -> dict[MemberIndex, MemberIndex]:
    """For each member the one with the next more features and everything else the same."""
    families: dict[str, list[tuple[int, MemberIndex]]] = {}
    for index, configs in enumerate(stacks):
        for position, config in enumerate(configs):
            dictionary = dict(config["dictionary"])
            features = dictionary.pop("d_sae")
            rest = json.dumps({**config, "dictionary": dictionary}, sort_keys=True)
            families.setdefault(rest, []).append((features, (index, position)))
    ordered = [sorted(family) for family in families.values()]
    return {member: larger for family in ordered for (_, member), (_, larger) in pairwise(family)}


def _compare(folders: Sequence[Path], index: int, partners: Sequence[MemberIndex | None]) -> list[float | None]:
    """The MMCS of each member of a stack with its partner; None where it has none."""
    directions = _directions(folders[index])
    others = {stack: _directions(folders[stack]) for stack in sorted({partner[0] for partner in partners if partner})}
    return [
        None if partner is None else float(mmcs_with(directions[position][None], others[partner[0]][partner[1]][None]))
        for position, partner in enumerate(partners)
    ]


def _directions(folder: Path) -> Float[Tensor, "m f d"]:
    return torch.from_numpy(read_arrays(folder / "weights.safetensors")["decoder"])
