"""How sparsely a dictionary fires, from counts of firing.

density = share of samples in which a feature fires     L0 = Σ_f density     dead = features that never fired
"""

from unbraid.axes import Float, Int, Tensor


def density(counts: Int[Tensor, "m f"], samples: int) -> Float[Tensor, "m f"]:
    return counts.double() / samples


def l0(counts: Int[Tensor, "m f"], samples: int) -> Float[Tensor, "m"]:
    return density(counts, samples).sum(-1)


def dead(counts: Int[Tensor, "m f"]) -> Int[Tensor, "m"]:
    return (counts == 0).sum(-1)
