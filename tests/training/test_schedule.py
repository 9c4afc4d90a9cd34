import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.training.schedule import Training, rate_factor


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
