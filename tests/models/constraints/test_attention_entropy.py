import numpy as np
import torch

from unbraid.models.constraints import AttentionEntropy

MASK = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)


def by_hand(pattern, keys=None):
    """Row by row; with `keys`, as a share of log keys over rows that see two or more."""
    members, stories, heads = pattern.shape[:3]
    expected = np.zeros(members)
    for m, b, h in np.ndindex(members, stories, heads):
        rows = []
        for t in range(4):
            if not MASK[b, t] or (keys is not None and keys[b, t] < 2):
                continue
            p = [pattern[m, b, h, t, s] for s in range(4) if MASK[b, s]]
            p = [share / max(sum(p), 1e-9) for share in p]
            entropy = -sum(share * np.log(share + 1e-9) for share in p)
            rows.append(entropy if keys is None else entropy / np.log(keys[b, t]))
        expected[m] += sum(rows) / len(rows) / (stories * heads)
    return expected


def test_both_forms_by_hand_on_rows_that_dropout_has_torn(rng):
    pattern = rng.random((2, 2, 3, 4, 4)) * (rng.random((2, 2, 3, 4, 4)) > 0.3)
    keys = np.array([[1, 2, 3, 4], [1, 2, 3, 4]])
    given = {"pattern": torch.from_numpy(pattern), "mask": torch.from_numpy(MASK), "keys": torch.from_numpy(keys)}
    np.testing.assert_allclose(AttentionEntropy(form="published").cost(**given), by_hand(pattern), atol=1e-12)
    np.testing.assert_allclose(AttentionEntropy().cost(**given), by_hand(pattern, keys), atol=1e-12)


def test_an_even_look_costs_most_and_a_single_token_nothing():
    even = torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
    mask, keys = torch.ones(1, 4, dtype=torch.bool), torch.arange(1, 5)[None]
    given = {"mask": mask, "keys": keys}
    expected = torch.tensor([np.log([1, 2, 3, 4]).mean()], dtype=torch.float32)
    cost = AttentionEntropy(form="published").cost(pattern=even.view(1, 1, 1, 4, 4), **given)
    torch.testing.assert_close(cost, expected)
    torch.testing.assert_close(AttentionEntropy().cost(pattern=even.view(1, 1, 1, 4, 4), **given), torch.ones(1))
    single = torch.eye(4).view(1, 1, 1, 4, 4)
    torch.testing.assert_close(AttentionEntropy().cost(pattern=single, **given), torch.zeros(1))
