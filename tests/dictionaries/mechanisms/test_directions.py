import numpy as np
import torch

from unbraid.dictionaries.mechanisms.directions import toward_errors


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def rows_toward(count, errors, survivors):
    spare = np.random.default_rng(7).standard_normal((count, errors.shape[1]))
    return toward_errors(*(torch.from_numpy(each) for each in (errors, survivors, spare))).numpy()


def test_while_there_is_room_rows_are_orthogonal_to_all_survivors_and_to_each_other(rng):
    errors, survivors = rng.standard_normal((50, 12)), unit(rng.standard_normal((5, 12)))
    rows = rows_toward(7, errors, survivors)
    np.testing.assert_allclose(rows @ rows.T, np.eye(7), atol=1e-12)
    np.testing.assert_allclose(rows @ survivors.T, 0, atol=1e-12)
    worst = errors[np.argsort(-np.linalg.norm(errors, axis=1))]
    assert rows[0] @ worst[0] > 0


def test_beyond_that_they_keep_away_from_the_closest_survivors(rng):
    errors, survivors = rng.standard_normal((500, 16)), unit(rng.standard_normal((64, 16)))
    rows = rows_toward(30, errors, survivors)
    plain = unit(errors[np.argsort(-np.linalg.norm(errors, axis=1))[:30]])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    closest = [np.abs(found @ survivors.T).max(1).mean() for found in (rows, plain)]
    assert closest[0] < closest[1]
    assert np.abs(rows @ rows.T - np.eye(30)).max() < 0.95


def test_errors_of_one_missing_feature_give_one_row_and_then_come_those_at_random(rng):
    """Six errors along one direction and two others: three rows of theirs, and no copy of a row or a survivor."""
    three = unit(rng.standard_normal((3, 12)))
    errors = np.concatenate([np.arange(9, 3, -1)[:, None] * three[0], three[1:]])
    for known in (5, 20):
        survivors = unit(rng.standard_normal((known, 12)))
        rows = rows_toward(6, errors, survivors)
        assert len(rows) == 6
        np.testing.assert_allclose(rows @ rows.T, np.eye(6), atol=1e-9 if known == 5 else 0.95)
        assert np.abs(rows @ survivors.T).max() < (1e-9 if known == 5 else 0.95)
        if known == 5:
            basis = np.linalg.qr(np.concatenate([survivors, three]).T)[0]
            np.testing.assert_allclose(np.linalg.norm(rows[:3] @ basis, axis=1), 1)
            assert (np.linalg.norm(rows[3:] @ basis, axis=1) < 1e-9).all()


def test_what_a_survivor_says_gives_no_row():
    errors, spare = torch.tensor([[3.0, 0, 0, 0], [2.0, 0, 0, 1.0]]), torch.tensor([[0.0, 1, 0, 0]])
    torch.testing.assert_close(toward_errors(errors, torch.eye(4)[:1], spare), torch.tensor([[0.0, 0, 0, 1.0]]))


def test_where_nothing_is_left_to_explain_directions_are_at_random():
    spare = torch.tensor([[1.0, 1, 0, 0], [0.0, 0, 1, 0]])
    expected = torch.tensor([[0.0, 1, 0, 0], [0.0, 0, 1, 0]])
    torch.testing.assert_close(toward_errors(torch.zeros(3, 4), torch.eye(4)[:1], spare), expected)
