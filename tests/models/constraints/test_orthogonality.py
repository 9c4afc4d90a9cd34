import numpy as np
import torch

from unbraid.models.constraints import Orthogonality

MASK = np.array([[1, 1, 0], [1, 1, 1]], bool)


def pooled(values):
    """By hand: the mean over tokens that are not padding, at length one; `m b h e`."""
    m, b, h, _, e = values.shape
    z = np.zeros((m, b, h, e))
    for i, j, k in np.ndindex(m, b, h):
        rows = [values[i, j, k, t] for t in range(3) if MASK[j, t]]
        mean = sum(rows) / len(rows)
        z[i, j, k] = mean / np.sqrt((mean**2).sum())
    return z


def test_published_is_the_mean_over_all_entries_diagonal_and_all(rng):
    values = rng.standard_normal((2, 2, 3, 3, 4))
    z, expected = pooled(values), np.zeros(2)
    for i, b, h, g in np.ndindex(2, 2, 3, 3):
        expected[i] += (z[i, b, h] @ z[i, b, g] - (h == g)) ** 2 / (2 * 3 * 3)
    ours = Orthogonality(form="published").cost(output=torch.from_numpy(values), mask=torch.from_numpy(MASK))
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_corrected_is_the_mean_over_pairs_of_what_heads_write(rng):
    values = rng.standard_normal((2, 2, 3, 3, 4))
    z, expected = pooled(values), np.zeros(2)
    for i, b in np.ndindex(2, 2):
        expected[i] += sum((z[i, b, h] @ z[i, b, g]) ** 2 for h, g in ((0, 1), (0, 2), (1, 2))) / (2 * 3)
    ours = Orthogonality().cost(written=torch.from_numpy(values), mask=torch.from_numpy(MASK))
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_orthogonal_heads_cost_nothing_and_equal_heads_one():
    apart = torch.eye(3).view(1, 1, 3, 1, 3).expand(1, 2, 3, 3, 3)
    same = torch.ones(1, 2, 3, 3, 3)
    mask = torch.from_numpy(MASK)
    torch.testing.assert_close(Orthogonality().cost(mask, written=apart), torch.zeros(1))
    torch.testing.assert_close(Orthogonality().cost(mask, written=same), torch.ones(1))
    torch.testing.assert_close(Orthogonality(form="published").cost(mask, output=same), torch.tensor([6 / 9]))


def test_the_published_cost_changes_when_a_head_turns_its_own_coordinates(rng):
    """W_V R, Rᵀ W_O is the same head: it writes the same, and the published cost is another."""
    read, out = torch.from_numpy(rng.standard_normal((1, 2, 3, 3, 4))), torch.from_numpy(rng.standard_normal((3, 4, 5)))
    turn = torch.linalg.qr(torch.from_numpy(rng.standard_normal((3, 4, 4))))[0]
    mask = torch.from_numpy(MASK)
    turned = read @ turn[None, None]
    before, after = read @ out, turned @ (turn.mT @ out)
    torch.testing.assert_close(Orthogonality().cost(mask, written=before), Orthogonality().cost(mask, written=after))
    published = Orthogonality(form="published")
    assert (published.cost(mask, output=read) - published.cost(mask, output=turned)).abs() > 1e-2
