"""What the end of a log says of every member, from lines written by hand."""

import pytest

from unbraid.sweeps.dictionary_work import end_of_training


def test_the_last_tenth_of_the_log_is_averaged_member_by_member_over_all_terms():
    early = [{"terms": {"fidelity": [9.0, 9.0], "sparsity": [9.0, 9.0]}, "l0": [99.0, 99.0]}] * 18
    late = [
        {"terms": {"fidelity": [1.0, 2.0], "sparsity": [0.5, 0.25]}, "l0": [3.0, 5.0]},
        {"terms": {"fidelity": [2.0, 4.0], "sparsity": [0.5, 0.75]}, "l0": [4.0, 7.0]},
    ]
    found = end_of_training(early + late)
    assert found["loss"] == pytest.approx([2.0, 3.5])
    assert found["training_l0"] == pytest.approx([3.5, 6.0])


def test_one_line_is_its_own_tenth():
    assert end_of_training([{"terms": {"fidelity": [1.5]}, "l0": [2.0]}]) == {"loss": [1.5], "training_l0": [2.0]}
