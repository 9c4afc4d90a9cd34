import os
import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import stats

from unbraid.randomness import stream

NAMES = [
    (),
    ("train",),
    ("train", 0),
    ("train", 1),
    (0, "train"),
    ("test", 0),
    ("tra", "in", 0),
    (0,),
    (1,),
    (0, 0),
    (0, 1),
]


@pytest.mark.parametrize("names", NAMES)
def test_the_same_name_is_the_same_stream(names):
    assert np.array_equal(stream(3, *names).random(100), stream(3, *names).random(100))


@pytest.mark.parametrize("method", ["random", "standard_normal"])
def test_streams_of_different_seeds_or_names_are_not_correlated(method):
    draws = [getattr(stream(seed, *names), method)(4000) for seed in (0, 1, 2) for names in NAMES]
    limit = 6 / np.sqrt(4000)
    assert all(abs(np.corrcoef(a, b)[0, 1]) < limit for a, b in combinations(draws, 2))


def test_neighbouring_positions_make_one_good_uniform_sequence():
    draws = np.array([stream(0, "train", position).random() for position in range(4000)])
    assert stats.kstest(draws, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(list(pairwise(draws)), rowvar=False)[0, 1]) < 6 / np.sqrt(4000)


@pytest.mark.parametrize("salt", ["1", "2"])
def test_a_stream_is_the_same_in_another_process(salt):
    program = "from unbraid.randomness import stream; print(stream(5, 'train', 17).integers(1 << 60))"
    environment = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == stream(5, "train", 17).integers(1 << 60)
