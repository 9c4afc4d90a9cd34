"""What every training leaves: the end of its log as scores, and the sentence about a loss that is not finite."""

import pytest

from unbraid.pipeline.dictionary_stages import end_of_training


def test_the_last_step_counts_member_by_member_with_all_terms():
    early = [{"terms": {"reconstruction": [9.0, 9.0], "sparsity": [9.0, 9.0]}, "l0": [99.0, 99.0]}] * 18
    late = {"terms": {"reconstruction": [1.0, 2.0], "sparsity": [0.5, 0.25]}, "l0": [3.0, 5.0]}
    scores = end_of_training([*early, late])
    assert scores["loss"] == pytest.approx([1.5, 2.25])
    assert scores["training_l0"] == [3.0, 5.0]
