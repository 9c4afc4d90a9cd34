"""The cosine matrix: cells are cosines of the directions on disk, pooled pixels their largest; chance is simulated."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.explorer.small import client, folder
from unbraid.explorer import directions
from unbraid.explorer.directions import Cosines, coloured, expected_best, pool
from unbraid.metrics import recovery
from unbraid.storage.files import read_arrays


def unit(values):
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def test_a_cell_is_the_cosine_of_two_directions_on_disk():
    stack = folder() / "planted/stacks/00"
    truth = unit(read_arrays(stack / "truth.safetensors")["directions"].astype(float))
    learned = unit(read_arrays(stack / "weights.safetensors")["decoder"][1].astype(float))
    for row, column in ((0, 0), (3, 3), (15, 19)):
        cell = client().get(f"/runs/planted/directions/cell?stack=0&member=1&row={row}&column={column}").json()
        assert cell["cosine"] == pytest.approx(truth[cell["concept"]] @ learned[cell["feature"]], abs=1e-3)


def test_the_diagonal_is_the_match_best_first():
    tables = read_arrays(folder() / "planted/stacks/00/tables.safetensors")
    cells = [
        client().get(f"/runs/planted/directions/cell?stack=0&member=0&row={i}&column={i}").json() for i in range(16)
    ]
    assert all(tables["match"][0][cell["concept"]] == cell["feature"] for cell in cells)
    assert sorted((cell["cosine"] for cell in cells), reverse=True) == [cell["cosine"] for cell in cells]


def test_chance_agrees_with_the_metric_and_with_random_directions():
    assert expected_best(512, 64) == pytest.approx(recovery.expected_best(512, 64), abs=1e-9)
    random = np.random.default_rng(0)
    drawn = [(unit(random.normal(size=(40, 12))) @ unit(random.normal(size=12))).max() for _ in range(3000)]
    assert expected_best(40, 12) == pytest.approx(np.mean(drawn), abs=0.006)


def test_a_tile_has_a_pixel_a_cell_or_more():
    answer = client().get("/runs/planted/directions/tile?stack=0&member=0")
    picture = Image.open(io.BytesIO(answer.content))
    assert answer.headers["content-type"] == "image/png"
    assert picture.size == (20 * 16, 16 * 16)
    near = Image.open(io.BytesIO(client().get("/runs/planted/directions/tile?row=2&column=3&zoom=-5").content))
    assert near.size == (512, 14 * 32)


def test_pooling_keeps_the_largest_in_size_with_its_sign():
    table = np.array([[0.1, -0.9, 0.2], [0.3, 0.4, -0.1], [0.5, 0.0, 0.0]])
    assert pool(table, 2).tolist() == [[-0.9, 0.2], [0.5, 0.0]]
    random = np.random.default_rng(0)
    truth, learned = unit(random.normal(size=(1000, 8))), unit(random.normal(size=(900, 8)))
    known = Cosines(np.arange(1000), np.arange(900), truth, learned)
    whole = truth @ learned.T
    assert np.allclose(known.view(0, 0, 1), pool(whole, 2)[:512, :512])
    assert np.allclose(known.view(16, 32, 3), pool(whole[16:, 32:], 8), atol=1e-6)
    assert known.view(0, 0, 4).shape == (63, 57)


def test_colours_run_from_blue_over_white_to_orange():
    ends = coloured(np.array([[-1.0, 0.0, 1.0]]))[0].astype(int)
    assert np.abs(ends - [[5, 80, 160], [247, 247, 247], [200, 90, 0]]).max() <= 2


def test_bad_places_and_runs_without_truth():
    for bad in ("row=16", "column=20", "zoom=9", "zoom=-6", "row=x"):
        assert client().get(f"/runs/planted/directions?{bad}").status_code == 400, bad
    assert client().get("/runs/pipeline/directions").status_code == 404
    page = client().get("/runs/planted/directions").text
    assert f"{expected_best(20, 12):.3f}" in page


def test_pooled_block_by_block_is_pooled_at_once(monkeypatch):
    monkeypatch.setattr(directions, "BLOCK", (16, 64))
    random = np.random.default_rng(1)
    truth, learned = unit(random.normal(size=(101, 8))), unit(random.normal(size=(333, 8)))
    known = Cosines(np.arange(101), np.arange(333), truth, learned)
    assert np.allclose(known.pooling.result(), pool(truth @ learned.T, 8))
    assert np.allclose(known.view(0, 0, 4), pool(truth @ learned.T, 16))


def test_a_sketch_has_the_diagonal_and_never_more_than_the_whole():
    random = np.random.default_rng(2)
    learned = unit(random.normal(size=(4100, 16)))
    truth = unit(learned + 0.2 * random.normal(size=learned.shape))
    known = Cosines(np.arange(4100), np.arange(4100), truth, learned)
    for row, column in ((0, 0), (0, 2048), (1024, 16)):
        sketch, whole = known.sketch(row, column, 3), known.view(row, column, 3)
        assert sketch.shape == whole.shape
        assert (np.abs(sketch) <= np.abs(whole) + 1e-6).all()
    on_it = np.arange(512)
    best = np.abs((truth * learned).sum(1)[:4096]).reshape(512, 8).max(1)
    assert (np.abs(known.sketch(0, 0, 3)[on_it, on_it]) >= best - 1e-6).all()


def test_a_tile_is_a_sketch_until_the_table_is_there(monkeypatch):
    monkeypatch.setattr(directions, "POOLED", -5)
    monkeypatch.setattr(directions, "_is_pooled", lambda _: False)
    monkeypatch.setattr(Cosines, "sketch", lambda *_: np.ones((3, 3)))
    monkeypatch.setattr(Cosines, "view", lambda *_: np.ones((5, 5)))
    address = "/runs/planted/directions/tile?stack=0&member=1&zoom=-4&row=1"
    sketch, exact = (client().get(address + end) for end in ("", "&exact=1"))
    assert sketch.headers["cache-control"] == "no-store"
    assert Image.open(io.BytesIO(sketch.content)).size == (3, 3)
    assert Image.open(io.BytesIO(exact.content)).size == (80, 80)
    assert client().get("/runs/planted/directions/tile?exact=2").status_code == 400
