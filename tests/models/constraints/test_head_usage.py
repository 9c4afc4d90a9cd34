import numpy as np
import torch

from unbraid.models.constraints import HeadUsage

MASK = np.array([[1, 1, 0], [1, 1, 1]], bool)


def entropy_by_hand(values):
    members, stories, heads, _, _ = values.shape
    entropies = np.zeros(members)
    for m in range(members):
        used = np.zeros(heads)
        for b, h in np.ndindex(stories, heads):
            sizes = [np.sqrt((values[m, b, h, t] ** 2).sum() + 1e-9) for t in range(3) if MASK[b, t]]
            used[h] += sum(sizes) / len(sizes) / stories
        p = used / used.sum()
        entropies[m] = -(p * np.log(p + 1e-9)).sum()
    return entropies


def test_both_forms_by_hand(rng):
    values = rng.standard_normal((2, 2, 3, 3, 4)) * np.array([1, 5, 0])[:, None, None]
    mask, given = torch.from_numpy(MASK), torch.from_numpy(values)
    expected = entropy_by_hand(values)
    np.testing.assert_allclose(HeadUsage(form="published").cost(mask, output=given), expected, atol=1e-12)
    np.testing.assert_allclose(HeadUsage().cost(mask, written=given), expected / np.log(3), atol=1e-12)


def test_heads_alike_cost_most_and_a_single_head_nothing():
    alike = torch.ones(1, 2, 4, 3, 5)
    single = alike * torch.tensor([0.0, 0, 1e6, 0])[:, None, None]
    mask = torch.from_numpy(MASK)
    torch.testing.assert_close(HeadUsage().cost(mask, written=alike), torch.ones(1))
    torch.testing.assert_close(HeadUsage(form="published").cost(mask, output=alike), torch.tensor([np.log(4)]).float())
    torch.testing.assert_close(HeadUsage().cost(mask, written=single), torch.zeros(1), rtol=0, atol=1e-5)
