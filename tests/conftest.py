"""Every test runs with the shapes and types in unbraid's annotations checked at run time."""

import os

import beartype.typing  # noqa: F401 (the checker below names it)
import numba
import numpy as np
import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# jaxtyping decorates methods one by one, and beartype knows `Self` only inside a class that it decorates whole.
install_import_hook(
    "unbraid",
    "beartype.beartype(conf=beartype.BeartypeConf(hint_overrides=beartype.FrozenDict({beartype.typing.Self: object})))",
)

# The tests' sizes are tiny, and CI may share its cores: more threads would only wait for each other.
torch.set_num_threads(1)
numba.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

settings.register_profile("unbraid", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("unbraid")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
