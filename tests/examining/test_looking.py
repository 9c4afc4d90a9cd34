"""Tables of heads against loops over stories, queries and keys."""

import numpy as np
import pytest
import torch

from unbraid.examining.examine import fresh
from unbraid.examining.looking import look
from unbraid.metrics.separation import explained
from unbraid.models import Routed


@pytest.mark.parametrize("causal", [True, False])
def test_where_heads_look_is_what_loops_over_the_patterns_find(make, world, causal):
    """70 stories are two batches, of unequal size and padded to other lengths."""
    one, batches = make(causal=causal), fresh(world, 70)
    assert [len(batch.tokens) for batch in batches] == [64, 6]
    found = look(one, batches)
    support, uniform, spread = [], [], []
    for batch in batches:
        pattern = one.forward(batch.tokens, ["blocks.1.attn.hook_pattern"]).recorded["blocks.1.attn.hook_pattern"]
        for b in range(len(batch.tokens)):
            length = int(batch.mask[b].sum())
            for q, place in enumerate(batch.asked[b].tolist()):
                told = batch.support[b, q].nonzero()[:, 0].tolist()
                support.append(pattern[0, b, 1, place, told].sum().item())
                uniform.append(len(told) / (place + 1 if causal else length))
            for t in range(1 if causal else 0, length):
                keys = pattern[0, b, 1, t, : t + 1 if causal else length].double().numpy()
                spread.append(np.exp(-(keys * np.log(keys)).sum()) / len(keys))
    assert found["support"][0, 1, 1].item() == pytest.approx(np.mean(support), rel=1e-4)
    assert found["uniform"].item() == pytest.approx(np.mean(uniform), rel=1e-4)
    assert found["spread"][0, 1, 1].item() == pytest.approx(np.mean(spread), rel=1e-4)


def test_what_heads_write_and_read_is_taken_over_all_stories(make, world):
    one, batches = make(), fresh(world, 70)
    found = look(one, batches)
    names = ["blocks.0.attn.hook_result", "blocks.0.attn.hook_z"]
    lengths, read, values, means = [], [], [], []
    for batch in batches:
        written, z = (one.forward(batch.tokens, names).recorded[name][0] for name in names)
        for b in range(len(batch.tokens)):
            for t in range(int(batch.mask[b].sum())):
                lengths.append(written[b, :, t].norm(dim=-1))
                read.append(z[b, :, t])
                values.append(batch.factors["person"][b, t].item())
            means.append(written[b][:, batch.mask[b]].mean(1))
    activity = torch.stack(lengths).mean(0)
    torch.testing.assert_close(found["activity"][0, 0], activity / activity.sum())
    place = list(batches[0].factors).index("person")
    expected = explained(torch.stack(read)[None], torch.tensor(values))[0]
    torch.testing.assert_close(found["explained"][0, 0, :, place], expected, rtol=1e-4, atol=1e-5)
    cosines = torch.nn.functional.cosine_similarity(*torch.stack(means).unbind(1), dim=-1).abs().mean()
    assert found["cosine"][0, 0, 0, 1].item() == pytest.approx(cosines.item(), rel=1e-4)


def test_a_routed_head_is_looked_at_where_tokens_take_it(make, world):
    """Loops over the tokens whose gate is open; at a question that does not take the head, nothing is looked at."""
    one, batches = make(heads=4, attention=Routed(k=2)), fresh(world, 70)
    found = look(one, batches)
    names = ["blocks.1.attn.hook_pattern", "blocks.1.attn.hook_gate", "blocks.1.attn.hook_z"]
    support, spread, read, values = [], [], [], []
    for batch in batches:
        recorded = one.forward(batch.tokens, names).recorded
        pattern, gate, z = (recorded[name][0] for name in names)
        for b in range(len(batch.tokens)):
            for q, place in enumerate(batch.asked[b].tolist()):
                told = batch.support[b, q].nonzero()[:, 0].tolist()
                support.append(pattern[b, 1, place, told].sum().item() if gate[b, place, 1] > 0 else 0.0)
            for t in range(int(batch.mask[b].sum())):
                read.append(z[b, :, t] * gate[b, t, :, None])
                values.append(batch.factors["person"][b, t].item())
                if t and gate[b, t, 1] > 0:
                    keys = pattern[b, 1, t, : t + 1].double().numpy()
                    spread.append(np.exp(-(keys * np.log(keys)).sum()) / len(keys))
    assert found["support"][0, 1, 1].item() == pytest.approx(np.mean(support), rel=1e-4)
    assert found["spread"][0, 1, 1].item() == pytest.approx(np.mean(spread), rel=1e-4)
    place = list(batches[0].factors).index("person")
    expected = explained(torch.stack(read)[None], torch.tensor(values))[0]
    torch.testing.assert_close(found["explained"][0, 1, :, place], expected, rtol=1e-4, atol=1e-5)


def test_tables_have_a_layer_and_a_head_axis(make, world):
    found = look(make(heads=4, layers=3), fresh(world, 8))
    shapes = {name: tuple(table.shape) for name, table in found.items()}
    factors = len(world.factors)
    assert shapes["support"] == shapes["spread"] == shapes["activity"] == (1, 3, 4)
    assert shapes["distance"] == shapes["cosine"] == shapes["cka"] == (1, 3, 4, 4)
    assert shapes["explained"] == (1, 3, 4, factors)
    assert "usage" not in shapes
