"""The letters in annotations are checked while the tests run: without this, no shape in the house is tested."""

import pytest
import torch
from jaxtyping import TypeCheckError

from tests.checking import checked
from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack


def test_a_call_with_a_wrong_number_of_axes_is_an_error():
    stack = Stack.start(Dictionary(d_sae=3), dimensions=4, seeds=[0])
    with pytest.raises(TypeCheckError):
        stack.pre_activations(torch.zeros(2, 5, 4))


def test_two_arguments_that_disagree_on_a_letter_are_an_error():
    with pytest.raises(TypeCheckError):
        Codes(torch.zeros(1, 2, 3, dtype=torch.long), torch.zeros(1, 2, 4), width=9)


@checked
def halved(x: Float[Tensor, "b d"], keep: bool = False) -> Float[Tensor, "b d"]:
    return x if keep else x[:, ::2]


@checked
def doubled(number: int) -> int:
    return 2 * number if number else "nothing"


def test_an_answer_that_disagrees_with_an_argument_on_a_letter_is_an_error():
    assert halved(torch.zeros(2, 4), keep=True).shape == (2, 4)
    assert halved(torch.zeros(3, 7), keep=True).shape == (3, 7)  # each call has letters of its own
    with pytest.raises(TypeCheckError):
        halved(torch.zeros(2, 4))


def test_a_type_without_a_shape_is_checked_before_and_after():
    assert doubled(2) == 4
    with pytest.raises(TypeCheckError):
        doubled("two")
    with pytest.raises(TypeCheckError):
        doubled(0)
