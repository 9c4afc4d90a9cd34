"""Every test runs with the shapes and types in unbraid's annotations checked at run time."""

import beartype.typing  # noqa: F401 (the checker below names it)
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# jaxtyping decorates methods one by one, and beartype knows `Self` only inside a class that it decorates whole.
install_import_hook(
    "unbraid",
    "beartype.beartype(conf=beartype.BeartypeConf("
    "hint_overrides=beartype.FrozenDict({beartype.typing.Self: object})))",
)

settings.register_profile("unbraid", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("unbraid")


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(0)
