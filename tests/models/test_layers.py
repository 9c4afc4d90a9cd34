import numpy as np
import torch

from unbraid.models.layers import route

MASK = np.array([[1, 1, 1], [1, 1, 0]], bool)


def test_gates_and_balance_by_hand(rng):
    x, router = rng.standard_normal((2, 2, 3, 4)), rng.standard_normal((2, 5, 4))
    gates, means, picks = np.zeros((2, 2, 3, 5)), np.zeros((2, 5)), np.zeros((2, 5))
    for m, b, t in np.ndindex(2, 2, 3):
        scores = np.exp(router[m] @ x[m, b, t])
        soft = scores / scores.sum()
        best = np.argsort(soft)[-2:]
        gates[m, b, t, best] = 2 * soft[best] / soft[best].sum()
        if MASK[b, t]:
            means[m] += soft / 5
            picks[m, best] += 1 / 5
    routed = route(*(torch.from_numpy(part) for part in (x, router)), 2, torch.from_numpy(MASK))
    np.testing.assert_allclose(routed.gates, gates, atol=1e-12)
    np.testing.assert_allclose(routed.balance, 5 / 2 * (means * picks).sum(-1), atol=1e-12)


def test_balance_is_one_when_all_are_used_alike_and_largest_when_one_is():
    """Four tokens that each like another of four, against four that like the same."""
    mask, router = torch.ones(1, 4, dtype=torch.bool), 30 * torch.eye(4)[None]
    alike = route(torch.eye(4)[None, None], router, 1, mask)
    single = route(torch.eye(4)[:1].expand(1, 1, 4, 4), router, 1, mask)
    torch.testing.assert_close(alike.balance, torch.ones(1))
    torch.testing.assert_close(single.balance, torch.full((1,), 4.0))


def test_tokens_that_tie_still_take_k():
    routed = route(torch.zeros(1, 1, 3, 2), torch.zeros(1, 4, 2), 2, torch.ones(1, 3, dtype=torch.bool))
    assert ((routed.gates > 0).sum(-1) == 2).all()
    torch.testing.assert_close(routed.gates.sum(-1), torch.full((1, 1, 3), 2.0))


def test_a_single_one_is_taken_as_it_is(rng):
    x, router = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((1, 1, 3, 2), (1, 4, 2)))
    routed = route(x, router, 1, torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(routed.gates.amax(-1), (x @ router.mT[:, None]).softmax(-1).amax(-1))
    assert ((routed.gates > 0).sum(-1) == 1).all()
