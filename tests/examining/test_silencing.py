"""Heads that are needed for nothing, and for everything."""

import pytest
import torch

from unbraid.examining.examine import fresh
from unbraid.examining.silencing import back, groupings, silence
from unbraid.metrics import answering


def test_a_head_that_nothing_reads_is_needed_for_nothing(make, world):
    one, batches = make(), fresh(world, 40)
    out = one.weights["blocks.1.attn.out"]
    out[:, :, 4:] = 0  # of 8 columns the last four are those of head 1
    found = silence(one, batches)
    for name in ("importance", "needed", "largest_drop", "dealt_drop"):
        assert found[name].shape == (1, 2, 2)
        assert found[name][0, 1, 1].item() == 0, name


def test_importance_is_the_accuracy_lost_by_writing_nothing(make, world):
    """Silencing is as good as a head whose columns of the output are zero."""
    one, batches = make(), fresh(world, 40)
    found = silence(one, batches)

    def right() -> torch.Tensor:
        each = [answering.right(one.read(one.forward(b.tokens), b.asked), b.answers).flatten(1) for b in batches]
        return torch.cat(each, 1)

    whole = right()
    one.weights["blocks.0.attn.out"][:, :, :4] = 0
    without = right()
    lost = whole.double().mean() - without.double().mean()
    assert found["importance"][0, 0, 0].item() == pytest.approx(lost.item())
    assert found["needed"][0, 0, 0].item() == pytest.approx((whole & ~without).double().mean().item())
    assert (whole & ~without).any()
    assert (found["largest_drop"] >= found["importance"] - 1e-9).all()


def test_questions_are_grouped_by_answer_order_and_distance(world):
    batches = fresh(world, 70)
    answers, order, quarters = groupings(batches)
    assert answers.tolist() == torch.cat([batch.answers.flatten() for batch in batches]).tolist()
    assert order.tolist() == [0, 1] * 70
    far = back(batches[0])
    first = batches[0]
    expected = int(first.asked[0, 0]) - int(first.support[0, 0].nonzero().max())
    assert far[0].item() == expected
    assert set(quarters.tolist()) <= {0, 1, 2, 3}
    apart = torch.cat([back(batch) for batch in batches])
    assert apart[quarters == 0].max() <= apart[quarters == quarters.max()].min()
