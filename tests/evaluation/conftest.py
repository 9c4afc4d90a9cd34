"""A world small enough to loop over, and models on it."""

import pytest

from unbraid.models import Models, Transformer, start_models
from unbraid.worlds.stories import Stories


@pytest.fixture(scope="session")
def world() -> Stories:
    return Stories(task="one_fact", people=2, places=3, rounds=2)


@pytest.fixture(scope="session")
def make(world: Stories):
    """Models of some members, with settings that differ so from small ones."""

    def start(members: int = 1, **changes) -> Models:
        settings = Transformer(**{"d_model": 8, "heads": 2, "layers": 2, "d_ff": 8, **changes})
        words, classes = len(world.vocabulary), len(world.answers)
        return start_models(settings, words, world.length, classes, range(members))

    return start
