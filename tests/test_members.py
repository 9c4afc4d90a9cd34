import pytest
import torch

from unbraid.config import per_member_fields
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.members import stack_configs


def test_knobs_become_tensors_over_members_in_order():
    together = stack_configs([Sparsity(weight=0.1), Sparsity(weight=0.3), Sparsity(weight=0.2)])
    assert torch.equal(torch.as_tensor(together.weight), torch.tensor([0.1, 0.3, 0.2]))
    assert together.form == "per_sample"


def test_one_member_is_a_tensor_of_one():
    assert torch.equal(torch.as_tensor(stack_configs([Training(learning_rate=0.5)]).learning_rate), torch.tensor([0.5]))


@pytest.mark.parametrize("other", [{"steps": 9}, {"clip": 1.0}, {"reconstruction_loss": "mean_square"}])
def test_members_that_differ_in_anything_else_are_refused_by_name(other):
    with pytest.raises(ValueError, match=next(iter(other))):
        stack_configs([Training(), Training(**other)])


def test_the_knobs_are_the_settings_marked_so():
    assert per_member_fields(Sparsity) == {"weight", "target_l0"}
    assert per_member_fields(Training) == {"learning_rate"}
