from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.config import read_toml
from unbraid.dictionaries.training.config import Training
from unbraid.schedule import Schedule, rate_factor, resolve_schedule


@st.composite
def trainings(draw):
    steps = draw(st.integers(1, 60))
    warmup = draw(st.integers(0, steps))
    return Training(steps=steps, warmup_steps=warmup, decay_steps=draw(st.integers(0, steps - warmup)))


def factors(training):
    return [rate_factor(step, training) for step in range(training.steps)]


@given(trainings())
def test_the_rate_rises_stays_and_falls_in_equal_stairs(training):
    """Neither end is 0: warm-up climbs 1/(w+1), 2/(w+1), …, w/(w+1), then 1; decay comes down the same way."""
    warmup, decay = training.warmup_steps, training.decay_steps
    rising = [(i + 1) / (warmup + 1) for i in range(warmup)]
    falling = [(decay - i) / (decay + 1) for i in range(decay)]
    flat = [1.0] * (training.steps - warmup - decay)
    assert factors(training) == pytest.approx(rising + flat + falling)


def test_without_warm_up_and_decay_the_rate_never_changes():
    assert factors(Training(steps=9)) == [1.0] * 9


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"steps": 4, "warmup_steps": 4}, [0.2, 0.4, 0.6, 0.8]),
        ({"steps": 4, "decay_steps": 4}, [0.8, 0.6, 0.4, 0.2]),
        ({"steps": 6, "warmup_steps": 1, "decay_steps": 3}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
    ],
)
def test_a_few_by_hand(settings, expected):
    assert factors(Training(**settings)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"steps": 1000}, (0, 0)),
        ({"steps": 2040, "warmup_share": 0.049}, (100, 0)),
        ({"steps": 800, "warmup_share": 0.0625, "decay_share": 0.3125}, (50, 250)),
        ({"steps": 80, "warmup_share": 0.0625, "decay_share": 0.3125}, (5, 25)),
        ({"steps": 3, "warmup_share": 0.5, "decay_share": 0.5}, (2, 1)),
        ({"steps": 1, "warmup_share": 1.0}, (1, 0)),
        ({"steps": 100, "warmup_share": 0.5, "warmup_steps": 7, "decay_share": 0.2}, (7, 20)),
        ({"steps": 100, "decay_share": 0.5, "decay_steps": 0}, (0, 0)),
    ],
)
def test_warm_up_and_decay_are_shares_of_the_steps_unless_stated(settings, expected):
    assert resolve_schedule(Schedule(**settings)) == expected


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0, 1))
def test_shares_fit_in_any_number_of_steps(steps, warmup, rest):
    assert sum(resolve_schedule(Schedule(steps=steps, warmup_share=warmup, decay_share=rest * (1 - warmup)))) <= steps


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 10, "warmup_share": 0.6, "decay_share": 0.6},
        {"steps": 10, "warmup_steps": 6, "decay_share": 0.6},
        {"steps": 10, "warmup_steps": 6, "decay_steps": 5},
    ],
)
def test_a_schedule_longer_than_the_training_is_refused(settings):
    with pytest.raises(ValueError, match="together at most 10"):
        Schedule(**settings)


CONFIGS = sorted((Path(__file__).parents[1] / "configs").rglob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_any_configuration_takes_fewer_steps(path):
    Training.model_validate({**read_toml(path).get("training", {}), "steps": 7})
