import numpy as np
import torch

from unbraid.mechanisms.directions import toward_errors


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_while_there_is_room_rows_are_orthogonal_to_all_survivors_and_to_each_other(rng):
    errors, survivors = rng.standard_normal((50, 12)), unit(rng.standard_normal((5, 12)))
    rows = toward_errors(7, torch.from_numpy(errors), torch.from_numpy(survivors)).numpy()
    np.testing.assert_allclose(rows @ rows.T, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(rows @ survivors.T, 0, atol=1e-12)
    worst = errors[np.argsort(-np.linalg.norm(errors, axis=1))]
    assert rows[0] @ worst[0] > 0


def test_beyond_that_they_keep_away_from_the_closest_survivors(rng):
    errors, survivors = rng.standard_normal((500, 16)), unit(rng.standard_normal((64, 16)))
    rows = toward_errors(30, torch.from_numpy(errors), torch.from_numpy(survivors)).numpy()
    plain = unit(errors[np.argsort(-np.linalg.norm(errors, axis=1))[:30]])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    closest = [np.abs(found @ survivors.T).max(1).mean() for found in (rows, plain)]
    assert closest[0] < closest[1]
    assert np.abs(rows @ rows.T - np.eye(30)).max() < 0.95


def test_errors_that_point_one_way_still_give_rows_that_differ(rng):
    errors = rng.standard_normal(8) + 1e-3 * rng.standard_normal((6, 8))
    for known in (3, 10):
        rows = toward_errors(
            6, torch.from_numpy(errors), torch.from_numpy(unit(rng.standard_normal((known, 8))))
        ).numpy()
        assert np.abs(rows @ rows.T - np.eye(6)).max() < 0.99


def test_nothing_left_to_explain_still_gives_directions():
    rows = toward_errors(2, torch.zeros(3, 4), torch.eye(4)[:1])
    assert rows.isfinite().all()
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(2))
