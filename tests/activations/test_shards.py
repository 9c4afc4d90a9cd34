"""An epoch goes once through a split, in an order that anyone can ask for from anywhere; splits share no row."""

import numpy as np
import pytest
import torch
from scipy import stats

from unbraid.activations.shards import Manifest, Order, Origin, Shards, permute, write_shard


@pytest.mark.parametrize("amount", [1, 2, 3, 5, 16, 17, 100, 1023, 4097])
def test_a_shuffle_is_a_permutation(amount):
    assert sorted(permute(np.arange(amount), amount, 3, "a").tolist()) == list(range(amount))


def test_a_shuffle_can_be_asked_for_in_parts():
    whole = permute(np.arange(1000), 1000, 3, "a")
    assert np.array_equal(permute(np.array([700, 3, 3]), 1000, 3, "a"), whole[[700, 3, 3]])
    assert not np.array_equal(permute(np.arange(1000), 1000, 4, "a"), whole)
    assert not np.array_equal(permute(np.arange(1000), 1000, 3, "b"), whole)


def test_a_shuffle_looks_random():
    """Uniform at each tenth of the places, and neighbours no closer than chance."""
    found = permute(np.arange(10_000), 10_000, 0, "a")
    for part in np.split(found, 10):
        assert stats.kstest(part / 10_000, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(np.arange(10_000), found)[0, 1]) < 0.05


@pytest.fixture
def shards(tmp_path, rng):
    """Three shards of 700, 500 and 300 rows, each row its own number; documents of ten rows, one crossing a border."""
    sizes = (700, 500, 300)
    cards, first = [], 0
    for number, size in enumerate(sizes):
        rows = np.arange(first, first + size)
        tensors = {
            "activations": torch.from_numpy(np.repeat(rows[:, None], 4, 1)).float(),
            "tokens": torch.from_numpy(rows.astype(np.int32)),
            "positions": torch.from_numpy((rows % 10).astype(np.int32)),
            "documents": torch.from_numpy(((rows + 5) // 10).astype(np.int32)),
        }
        cards.append(write_shard(tmp_path, number, tensors))
        first += size
    origin = Origin(
        model="m",
        weights="w",
        tokenizer="t",
        site="s",
        width=4,
        dtype="float32",
        context=10,
        batch=1,
        text="x",
        text_sha256="y",
        tokens=first,
        shard_tokens=700,
    )
    Manifest(origin=origin, shards=tuple(cards)).write(tmp_path)
    return Shards.open(tmp_path)


def test_an_epoch_goes_once_through_a_split(shards):
    order = Order(shards, "train", 0)
    size = len(order) // 7
    assert len(order) == pytest.approx(1350, abs=60)
    first = np.concatenate([order.rows(position, size) for position in range(8)])[: len(order)]
    assert len(set(first.tolist())) == len(order)
    second = np.concatenate([order.rows(position, size) for position in range(7, 16)])
    assert not np.array_equal(first[:100], second[len(order) - 7 * size :][:100])


def test_splits_share_no_row_and_no_document(shards):
    rows = {
        split: np.sort(Order(shards, split, 0).rows(0, len(Order(shards, split, 0))))
        for split in ("train", "evaluation", "tracking")
    }
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(1500))
    documents = {split: set(shards.column("documents", found).tolist()) for split, found in rows.items()}
    assert not documents["train"] & documents["evaluation"]
    assert not documents["train"] & documents["tracking"]
    assert len(rows["evaluation"]) == pytest.approx(0.08 * 1500, abs=30)
    assert len(rows["tracking"]) == pytest.approx(0.02 * 1500, abs=30)


def test_rows_come_from_the_shards_they_are_in(shards):
    rows = np.array([1499, 0, 700, 699, 1200, 3, 3])
    assert shards.activations(rows)[:, 0].tolist() == rows.tolist()
    assert shards.column("tokens", rows).tolist() == rows.tolist()


def test_only_what_is_asked_for_is_mapped(shards):
    shards.activations(np.array([710]))
    assert list(shards._opened) == [1]
    assert isinstance(shards.shard(1)["activations"], np.memmap)
