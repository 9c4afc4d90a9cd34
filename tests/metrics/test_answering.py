"""Accuracy and the steps to it, counted by hand."""

import torch

from unbraid.metrics.answering import accuracy, right, steps_to


def test_an_answer_is_right_where_its_logit_is_the_largest():
    logits = torch.tensor([[[[2.0, 1, 0], [0, 1, 2]]], [[[0.0, 1, 0], [0, 1, 2]]]])
    found = right(logits, torch.tensor([[0, 2]]))
    assert found.tolist() == [[[True, True]], [[False, True]]]
    assert accuracy(found).tolist() == [1, 0.5]


def test_steps_to_a_level_are_those_of_the_first_time_it_is_reached():
    steps, accuracies = torch.tensor([10, 20, 30]), torch.tensor([[0.1, 0.96, 0.9], [0.1, 0.2, 0.95], [0.9, 0.9, 0.9]])
    found = steps_to(0.95, accuracies, steps)
    assert found[:2].tolist() == [20, 30]
    assert found[2].isnan()
