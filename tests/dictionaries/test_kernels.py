"""Kernels share the processor with torch: they use as many threads as it does, and leave its number alone."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numba, numpy as np, torch
from unbraid.dictionaries.kernels import clear_unused
for threads in map(int, sys.argv[1:]):
    torch.set_num_threads(threads)
    clear_unused(np.ones((1, 4, 2), np.float32), np.ones((1, 4, 2), np.int32), np.zeros((1, 4), np.int32))
    print(torch.get_num_threads(), numba.get_num_threads())
"""


@pytest.mark.parametrize("counts", [["1"], ["2", "1", "2"]])
def test_a_kernel_uses_torchs_threads_and_does_not_change_their_number(counts: list[str]):
    """Else what torch sums after the first kernel rounds otherwise than what it summed before."""
    command = [sys.executable, "-c", SCRIPT, *counts]
    words = subprocess.run(command, capture_output=True, text=True, check=True, env={"NUMBA_NUM_THREADS": "2"}).stdout
    assert words.splitlines() == [f"{count} {count}" for count in counts]
