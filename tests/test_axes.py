"""The letters in annotations are checked while the tests run: without this, no shape in the house is tested."""

import pytest
import torch
from jaxtyping import TypeCheckError

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack


def test_a_call_with_a_wrong_number_of_axes_is_an_error():
    stack = Stack.start(Dictionary(features=3), dimensions=4, seeds=[0])
    with pytest.raises(TypeCheckError):
        stack.encode(torch.zeros(2, 5, 4))


def test_two_arguments_that_disagree_on_a_letter_are_an_error():
    with pytest.raises(TypeCheckError):
        Codes(torch.zeros(1, 2, 3, dtype=torch.long), torch.zeros(1, 2, 4), width=9)
