"""Two dictionaries of the same site, matched feature by feature, beside what chance gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import safe_open

WEIGHTS = "weights.safetensors"
MOST_EXACT = 2048
"""Features up to which the best one-to-one matching is found; above, each other's nearest ones are matched."""
SAMPLE = 1024
"""Features of a large dictionary of which chance is taken."""
QUICK = 512
"""Features up to which a page need not wait for the matching."""


@dataclass(frozen=True)
class Matching:
    """Pairs of features with their cosine, the largest first; and the mean cosine of so many random directions."""

    pairs: list[tuple[int, int, float]]
    mean: float
    chance: float


def matched(sides: tuple[tuple[Path, int], tuple[Path, int]]) -> Matching | None:
    """Two members of stacks matched, kept while their files do not change; None where they read other dimensions."""
    paths = [folder / WEIGHTS for folder, _ in sides]
    if not all(path.is_file() for path in paths):
        return None
    return _matched(sides, tuple(path.stat().st_mtime_ns for path in paths))


@lru_cache(maxsize=32)
def _matched(sides: tuple[tuple[Path, int], tuple[Path, int]], _stamps: tuple[int, ...]) -> Matching | None:
    first, second = (directions(folder, member) for folder, member in sides)
    return None if first is None or second is None or first.shape[1] != second.shape[1] else match(first, second)


def is_quick(sides: Sequence[tuple[Path, int]]) -> bool:
    """Whether both are so small that they are matched at once; only the heads of their files are read."""
    return all(_features(folder / WEIGHTS, member) <= QUICK for folder, member in sides)


def _features(path: Path, member: int) -> int:
    if not path.is_file():
        return 0
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        name = next((name for name in (f"directions.{member}", "decoder") if name in names), None)
        return 0 if name is None else file.get_slice(name).get_shape()[-2]


def directions(folder: Path, member: int) -> np.ndarray | None:
    """The unit decoder directions of a member of a stack; None where none are kept."""
    path = folder / WEIGHTS
    if not path.is_file():
        return None
    with safe_open(path, framework="numpy") as file:
        names = set(file.keys())
        name = f"directions.{member}"
        if name not in names and "decoder" not in names:
            return None
        rows = file.get_tensor(name) if name in names else file.get_slice("decoder")[member : member + 1][0]
    rows = rows.astype(np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def match(first: np.ndarray, second: np.ndarray) -> Matching:
    """The pairs whose cosines sum to the most; of large dictionaries those that are nearest to each other."""
    pairs = _pairs(first, second)
    return Matching(pairs, _mean(pairs), _chance(first, second))


def _mean(pairs: list[tuple[int, int, float]]) -> float:
    return float(np.mean([cosine for _, _, cosine in pairs])) if pairs else float("nan")


def _pairs(first: np.ndarray, second: np.ndarray) -> list[tuple[int, int, float]]:
    if max(len(first), len(second)) <= MOST_EXACT:
        from scipy.optimize import linear_sum_assignment

        cosine = first @ second.T
        rows, columns = linear_sum_assignment(cosine, maximize=True)
        values = cosine[rows, columns]
    else:
        nearest, values, most = _nearest(first, second)
        rows = np.flatnonzero(values >= most[nearest])
        rows = rows[np.sort(np.unique(nearest[rows], return_index=True)[1])]  # of equal rows the first
        columns, values = nearest[rows], values[rows]
    order = np.argsort(-values, kind="stable")
    return [(int(rows[place]), int(columns[place]), float(values[place])) for place in order]


def _nearest(first: np.ndarray, second: np.ndarray, block: int = 256) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row of the first the row of the second with the largest cosine, and that; the largest of each second."""
    nearest, values = np.empty(len(first), dtype=int), np.empty(len(first), dtype=np.float32)
    most = np.full(len(second), -np.inf, dtype=np.float32)
    for start in range(0, len(first), block):
        table = first[start : start + block] @ second.T
        part = slice(start, start + len(table))
        nearest[part] = table.argmax(1)
        values[part] = table[np.arange(len(table)), nearest[part]]
        np.maximum(most, table.max(0), out=most)
    return nearest, values, most


def _chance(first: np.ndarray, second: np.ndarray) -> float:
    """The mean cosine of pairs with random directions; of large dictionaries, of a sample of the first's features."""
    generator = np.random.default_rng(0)
    random = generator.standard_normal(second.shape, dtype=np.float32)
    random /= np.linalg.norm(random, axis=-1, keepdims=True)
    if max(len(first), len(second)) <= MOST_EXACT:
        return _mean(_pairs(first, random))
    drawn = generator.choice(len(first), min(SAMPLE, len(first)), replace=False)
    nearest, values, _ = _nearest(first[drawn], random)
    back, _, _ = _nearest(random[nearest], first)
    return float(values[back == drawn].mean()) if (back == drawn).any() else float("nan")
