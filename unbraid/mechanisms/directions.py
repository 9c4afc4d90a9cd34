"""Directions for features that start anew: at random, or what the dictionary cannot say yet and no survivor says.

The latter are the errors x - x̂ of the worst samples, each made orthogonal to the survivors and to those before it. Once
there are as many as dimensions nothing is orthogonal to all of them: then to the d/4 that are most related to it.
"""

import torch
from torch.nn.functional import normalize

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries.stack import Stack
from unbraid.randomness import seed_of, stream


def own_seeds(stack: Stack) -> Int[Tensor, "m"]:
    """A seed for each member, from what its own seed made of its weights; the same however features are labelled."""
    return torch.tensor([seed_of(first.sort().values.float().numpy()) for first in stack.encoder.detach()[..., 0]])


def at_random(count: int, dimensions: int, seed: Tensor, who: str, step: Tensor) -> Float[Tensor, "n d"]:
    """So many unit rows, drawn by a member's seed for this mechanism and step."""
    drawn = stream(int(seed), who, int(step)).standard_normal((count, dimensions))
    return normalize(torch.from_numpy(drawn), dim=-1)


def toward_errors(count: int, errors: Float[Tensor, "b d"], survivors: Float[Tensor, "s d"]) -> Float[Tensor, "n d"]:
    """So many unit rows, no more than there are errors; the worst error's first."""
    worst = errors.square().sum(-1).argsort(descending=True, stable=True)
    wanted, known, dimensions = errors[worst[:count]], survivors, errors.shape[1]
    while len(wanted):
        room = dimensions - len(known)
        half = max(1, dimensions // 2)  # of more, the last would be mostly rounding
        some, wanted = wanted.tensor_split([min(room, half) if room > 0 else half])
        new = _apart(_without_span(known, some)) if room > 0 else _without_related(known, _apart(some))
        known = torch.cat([known, new])
    return known[len(survivors) :]


def _without_span(known: Float[Tensor, "s d"], rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    basis = torch.linalg.qr(known.T).Q
    return _what_is_left(rows, rows - rows @ basis @ basis.T)


def _without_related(known: Float[Tensor, "s d"], rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    closest = (rows @ known.T).abs().topk(max(1, rows.shape[1] // 4)).indices
    near = known[closest]
    square = near @ near.mT + 1e-6 * torch.eye(near.shape[1], dtype=near.dtype)  # never singular
    shares = torch.linalg.solve(square, near @ rows[..., None])
    return _what_is_left(rows, rows - (near.mT @ shares)[..., 0])


def _what_is_left(rows: Float[Tensor, "n d"], left: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Of length one; a row of which almost nothing is left stays as it was."""
    enough = left.norm(dim=-1, keepdim=True) > 1e-6 * rows.norm(dim=-1, keepdim=True)
    return normalize(torch.where(enough, left, rows), dim=-1)


def _apart(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """The same rows, each without what the ones before it say, and of length one."""
    basis, triangle = torch.linalg.qr(rows.T)
    return (basis * torch.where(triangle.diagonal() < 0, -1, 1)).T
