"""Find what may fire by a product in bfloat16, twice as fast as the exact one; it errs only to the safe side.

    may fire  where  x̃·w̃ + bias + |x - x̃|·|w̃| + |x|·|w - w̃| > 0        x̃, w̃: rounded to bfloat16

By Cauchy and Schwarz x·w - x̃·w̃ ≤ |x - x̃| |w̃| + |x| |w - w̃|, so nothing that fires is missed. Bias and bounds ride in
the same product as four more columns (the bias has two), each rounded up, so that its *sign* is the answer. What may
fire is then made exactly, in float32; the result is that of the exact product.

The screened number is above the exact one by at most twice the bound and a rounding. So the k largest of a sample are
among those whose screened number is at least the k-th largest screened one less that: `margins`.
"""

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.dictionaries import kernels

UP = 1 + 2**-7
"""A positive number times this, rounded to bfloat16, is not below the number."""
LONGEST = 2.0**126
ADDING = 2**-22
"""Rounding of a sum in float32 is below this times the number of terms, of the product of lengths."""


def pays() -> bool:
    """Whether this processor multiplies in bfloat16."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]


def of_inputs(x: Float[Tensor, "b d"]) -> Float[Tensor, "b d+4"]:
    rounded, length, off = _rounded(x)
    off = off + ADDING * x.shape[1] * length
    ones = torch.ones_like(length)
    rounded[:, -4:] = torch.stack([ones, ones, off * UP, length * UP], 1)
    return rounded


def of_encoder(encoder: Float[Tensor, "f d"], bias: Float[Tensor, "f"]) -> Float[Tensor, "f d+4"]:
    rounded, length, off = _rounded(encoder)
    rest = bias - bias.bfloat16()
    rounded[:, -4:] = torch.stack([bias, rest + rest.abs() * (UP - 1), length * UP, off * UP], 1)
    return rounded


def margins(x: Float[Tensor, "b e"], encoder: Float[Tensor, "f e"]) -> Float[Tensor, "b"]:
    """By how much a screened number of each sample may exceed the exact one, but for the rounding of itself."""
    off, length = x[:, -2:].float().unbind(1)
    bias, _, longest, farthest = encoder[:, -4:].float().abs().amax(0)
    return UP * (2 * (off * longest + length * farthest) + bias * 2**-12)


def _rounded(rows: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d+4"], Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Rows in bfloat16 with room for four more columns, their lengths, and how far each is from what it was.

    Lengths are finite: squares may overflow where lengths do not, and infinity times 0 has no sign.
    """
    samples, dimensions = rows.shape
    rounded = torch.empty(samples, dimensions + 4, dtype=torch.bfloat16)
    lengths = np.empty((2, samples), np.float32)
    exact = rows.contiguous().numpy()
    kernels.round_rows(
        exact, exact.view(np.uint32), rounded.view(torch.int16).numpy().view(np.uint16), lengths[0], lengths[1]
    )
    length, off = torch.from_numpy(lengths).clamp_max(LONGEST)
    return rounded, length, off


def signs(x: Float[Tensor, "b e"], encoder: Float[Tensor, "f e"], buffer: Float[Tensor, "b f"]) -> np.ndarray:
    """The screen as whole numbers of the same sign, in the buffer's memory; above 0: may fire."""
    return torch.mm(x, encoder.T, out=buffer).view(torch.int16).numpy()


NUMBERS = torch.arange(0x7F81, dtype=torch.int16).view(torch.bfloat16).float().numpy()
"""The positive numbers of bfloat16, from 0 to infinity, each at the place that its bits are as a whole number."""
