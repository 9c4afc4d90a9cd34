"""Frames: turns of space, one to a token, and how each irrep turns with them.

    exp(φ·G¹) = 1 + sin θ/θ A + ½ (sin ½θ / ½θ)² A²,   A = φ·G¹, θ = |φ|             (Rodrigues, ℓ = 1)
    exp(φ·Gˡ) = (2ℓ+1) C (exp(φ·G¹) ⊗ exp(φ·Gˡ⁻¹)) C,   C e3nn's 3j symbol (1, ℓ-1, ℓ)

which is exact, smooth at φ = 0 and of any degree; one φ turns every head of a token. The published attention had a
Taylor series to the fourth order in its place (`taylor`), which is no rotation once |φ| is beyond about a half.
"""

from functools import lru_cache

import torch

from unbraid.axes import Float, Tensor

TINY = 1e-24
"""Added to |φ|², so that its root has a slope at nothing."""
TAYLOR_ORDER = 4
SMALL = 2
"""Up to this degree one product with a table of all pairs of entries is faster than three products."""


@lru_cache(maxsize=32)
def _coupling(degree: int) -> Float[Tensor, "three e k"]:
    """How a vector and an irrep of the degree below make one of this degree; in float64."""
    from e3nn.o3 import wigner_3j  # here, because it takes a second and few models are of this kind

    return (2 * degree + 1) ** 0.5 * wigner_3j(1, degree - 1, degree, dtype=torch.float64)


@lru_cache(maxsize=32)
def _raising(degree: int, dtype: torch.dtype) -> Float[Tensor, "n k2"]:
    """The same for turns, whose both sides are coupled: from all products of their entries to all entries."""
    coupling = _coupling(degree)
    return torch.einsum("iek,jfl->iejfkl", coupling, coupling).flatten(4).flatten(0, 3).to(dtype)


@lru_cache(maxsize=32)
def generators(degree: int) -> Float[Tensor, "a e e"]:
    """Three skew matrices with [G_x, G_y] = G_z and -ΣG² = ℓ(ℓ+1), in e3nn's basis; in float64."""
    if degree == 0:
        return torch.zeros(3, 1, 1, dtype=torch.float64)
    if degree == 1:
        axes = torch.eye(3, dtype=torch.float64)
        return torch.stack([torch.linalg.cross(axis.expand(3, 3), axes).T for axis in axes])
    coupling, below = _coupling(degree), generators(degree - 1)
    vectors = torch.einsum("iek,aij,jel->akl", coupling, generators(1), coupling)
    return vectors + torch.einsum("iek,aef,ifl->akl", coupling, below, coupling)


Turns = dict[int, Float[Tensor, "*axes e e"]]
"""How a frame turns the irreps of each degree."""


def turns(frames: Float[Tensor, "*axes 3"], degrees: set[int]) -> Turns:
    """exp(φ·G) for each of these degrees."""
    found = {0: torch.ones_like(frames[..., :1, None])}
    if highest := max(degrees):
        found[1] = _rotation(frames)
    for degree in range(2, highest + 1):
        found[degree] = _raised(found[1], found[degree - 1], degree)
    return {degree: found[degree] for degree in degrees}


def into(turn: Float[Tensor, "m b t e e"], x: Float[Tensor, "m #b t h e"]) -> Float[Tensor, "m b t h e"]:
    """From tokens' own frames into that of all: Rᵀ x of every head."""
    return x if x.shape[-1] == 1 else x @ turn


def out_of(turn: Float[Tensor, "m b t e e"], x: Float[Tensor, "m b t h e"]) -> Float[Tensor, "m b t h e"]:
    """Back: R x of every head."""
    return x if x.shape[-1] == 1 else x @ turn.mT


def taylor(frames: Float[Tensor, "*axes 3"], degree: int, order: int = TAYLOR_ORDER) -> Float[Tensor, "*axes e e"]:
    """exp(φ·G) cut off after a power, as published."""
    turned = torch.einsum("...a,aij->...ij", frames, generators(degree).to(frames))
    power = total = torch.eye(turned.shape[-1]).to(frames).expand_as(turned)
    for k in range(1, order + 1):
        power = power @ turned / k
        total = total + power
    return total


def compose(first: Float[Tensor, "*#axes 3"], second: Float[Tensor, "*#axes 3"]) -> Float[Tensor, "*axes 3"]:
    """The φ with exp(φ·G) = exp(first·G) exp(second·G), at most π long; by unit quaternions."""
    (w1, v1), (w2, v2) = _quaternion(first), _quaternion(second)
    w = w1 * w2 - (v1 * v2).sum(-1, keepdim=True)
    v1, v2 = torch.broadcast_tensors(v1, v2)
    v = w1 * v2 + w2 * v1 + torch.linalg.cross(v1, v2)
    v = torch.where(w < 0, -v, v)  # the same turn, the short way round
    length = (v.square().sum(-1, keepdim=True) + TINY).sqrt()
    return 2 * torch.atan2(length, w.abs()) / length * v


def _quaternion(frames: Float[Tensor, "*axes 3"]) -> tuple[Float[Tensor, "*axes 1"], Float[Tensor, "*axes 3"]]:
    half = _angle(frames) / 2
    return half.cos(), half.sin() / (2 * half) * frames


def _angle(frames: Float[Tensor, "*axes 3"]) -> Float[Tensor, "*axes 1"]:
    return (frames.square().sum(-1, keepdim=True) + TINY).sqrt()


def _rotation(frames: Float[Tensor, "*axes 3"]) -> Float[Tensor, "*axes 3 3"]:
    angle = _angle(frames)[..., None]
    turned = torch.einsum("...a,aij->...ij", frames, generators(1).to(frames))
    eye = torch.eye(3).to(frames)
    square = frames[..., :, None] * frames[..., None, :] - angle.square() * eye
    half = angle / 2
    return eye + angle.sin() / angle * turned + (half.sin() / half).square() / 2 * square


def _raised(
    vectors: Float[Tensor, "*axes 3 3"], below: Float[Tensor, "*axes e e"], degree: int
) -> Float[Tensor, "*axes k k"]:
    """The turn of one degree more: both turns at once, as the coupled irrep sees them."""
    if degree > SMALL:
        coupling = _coupling(degree).to(below)
        half = (below @ coupling.permute(1, 0, 2).flatten(1)).unflatten(-1, (3, -1))  # e, then both of the other side
        turned = torch.einsum("...ij,...ejl->...iel", vectors, half)
        return coupling.flatten(0, 1).T @ turned.flatten(-3, -2)
    both = (vectors[..., :, None, :, None] * below[..., None, :, None, :]).flatten(-4)
    return (both @ _raising(degree, both.dtype).to(both)).unflatten(-1, (2 * degree + 1, -1))
