import pytest

from tests.dictionaries.mechanisms.hand_made import a_pass, a_stack
from unbraid.dictionaries.mechanisms import MomentumImportance, Signals

CODES = [[4, 0, 1], [0, 0, 1]]


def importances(mechanism, steps):
    stack, seen = a_stack(3), []
    memory = mechanism.start(stack)
    for _ in range(steps):
        memory = mechanism.observe(a_pass(CODES), memory, stack, Signals())
        seen.append(mechanism.signal(memory, stack)["importance"][0].tolist())
    return seen


def test_corrected_follows_mean_activity_at_every_step():
    """The batch is always the same, so the mean of all there has been is that of one."""
    found = importances(MomentumImportance(), 2)
    assert found[0] == pytest.approx([2, 0, 1])
    assert found[1] == pytest.approx([2, 0, 1])


def test_corrected_judges_a_feature_that_started_anew_by_its_own_time():
    mechanism, stack = MomentumImportance(), a_stack(3)
    memory = mechanism.start(stack)
    for _ in range(100):
        memory = mechanism.observe(a_pass([[4, 0, 1]]), memory, stack, Signals())
    anew = mechanism.start(stack)
    memory = {name: tensor.clone() for name, tensor in memory.items()}
    for name in ("importance", "age"):
        memory[name][0, 2] = anew[name][0, 2]
    assert mechanism.signal(memory, stack)["importance"][0].tolist() == pytest.approx([4, 0, 0])
    memory = mechanism.observe(a_pass([[4, 0, 3]]), memory, stack, Signals())
    assert mechanism.signal(memory, stack)["importance"][0].tolist() == pytest.approx([4, 0, 3])


def test_published_looks_only_every_so_many_steps():
    found = importances(MomentumImportance(form="published", every=3), 7)
    assert found[0] == found[1] == [1, 1, 1]
    assert found[2] == found[4] == pytest.approx([1.01, 0.99, 1])
    assert found[5] == found[6] == pytest.approx([0.99 * 1.01 + 0.02, 0.99**2, 1])
