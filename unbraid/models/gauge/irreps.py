"""Heads as irreps of SO(3), written as e3nn writes them: "5x0e + 3x1e + 1x2e" is nine heads, of width 1, 3 and 5.

Parity plays no part: frames only turn. The seed's own way, [["ℓ0", 5, 1], ["ℓ1", 3, 3]], means the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

HIGHEST = 11
"""The highest degree that e3nn has tables for."""


@dataclass(frozen=True)
class Family:
    """Heads of one degree ℓ that stand side by side: each is 2ℓ+1 wide."""

    degree: int
    heads: int
    first: int
    """The first of its columns among all."""

    @property
    def width(self) -> int:
        """Of one head."""
        return 2 * self.degree + 1

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.heads * self.width)


@lru_cache(maxsize=64)
def families(irreps: str, width: int | None = None) -> tuple[Family, ...]:
    """The heads of a specification; where `width` is more than they take, scalar heads fill what is left."""
    terms = _parsed(irreps)
    taken = sum(heads * (2 * degree + 1) for heads, degree in terms)
    if not terms:
        raise ValueError(f"irreps is '{irreps}', which has no head; accepted: for example 5x0e + 3x1e + 1x2e")
    if width is not None and taken > width:
        raise ValueError(f"irreps '{irreps}' take {taken} dimensions and d_model is {width}; accepted: at most {width}")
    if width is not None and taken < width:
        terms = [*terms, (width - taken, 0)]
    found: list[Family] = []
    for heads, degree in terms:
        found.append(Family(degree, heads, found[-1].columns.stop if found else 0))
    return tuple(found)


def written(irreps: object) -> object:
    """The seed's list of (name, heads, width) as e3nn would write it; anything else as it is."""
    if not isinstance(irreps, list):
        return irreps
    return " + ".join(_term(entry) for entry in irreps)


def _term(entry: object) -> str:
    if isinstance(entry, Sequence) and len(entry) == 3 and not isinstance(entry, str):
        name, heads, width = entry
        degree = str(name).removeprefix("ℓ").removeprefix("l").removesuffix("_pad")
        if degree.isdigit() and isinstance(heads, int) and width == 2 * int(degree) + 1:
            return f"{heads}x{degree}e"
    raise ValueError(f"{entry!r} is no irrep; accepted: [name, heads, width] with width 2ℓ+1, as ['ℓ1', 3, 3]")


def _parsed(irreps: str) -> list[tuple[int, int]]:
    from e3nn.o3 import Irreps  # here, because it takes a second and few models are of this kind

    try:
        terms = [(int(heads), int(irrep.l)) for heads, irrep in Irreps(irreps) if heads]
    except ValueError:
        raise ValueError(f"irreps is '{irreps}'; accepted: heads by degree, for example 5x0e + 3x1e + 1x2e") from None
    if high := [degree for _, degree in terms if degree > HIGHEST]:
        raise ValueError(f"irreps '{irreps}' have a degree of {high[0]}; accepted: 0 to {HIGHEST}")
    return terms
