"""The fate map shows every planted concept once, in the size and with the fate that the run's files say."""

import re

import numpy as np
import pytest

from tests.explorer.small import client, folder
from unbraid.explorer.concepts import squarify
from unbraid.metrics.catalog import CONCEPT_FATES
from unbraid.storage.files import read_arrays, read_json

TILE = re.compile(r'<a class="tile fate-(\w+)" href="/runs/\w+/concepts/(\d+)\?[^"]*" style="([^"]+)"')


@pytest.mark.parametrize("seed", range(5))
def test_tiles_fill_the_map_in_proportion_and_never_overlap(seed):
    sizes = np.sort(np.random.default_rng(seed).exponential(size=40))[::-1]
    placed = np.array(squarify(sizes.tolist(), 100.0, 50.0))
    x, y, width, height = placed.T
    assert np.allclose(width * height, sizes / sizes.sum() * 5000)
    assert (x >= -1e-9).all()
    assert (x + width <= 100 + 1e-6).all()
    assert (y + height <= 50 + 1e-6).all()
    for i in range(40):
        apart = (x >= x[i] + width[i] - 1e-6) | (x + width <= x[i] + 1e-6)
        apart |= (y >= y[i] + height[i] - 1e-6) | (y + height <= y[i] + 1e-6)
        assert apart.sum() == 39
    assert np.median(np.maximum(width / height, height / width)) < 2


def test_every_concept_is_a_tile_with_its_fate():
    tables = read_arrays(folder() / "planted/stacks/00/tables.safetensors")
    page = client().get("/runs/planted/concepts?stack=0&member=1").text
    shown = {int(number): fate for fate, number, _ in TILE.findall(page)}
    assert shown == {number: CONCEPT_FATES[fate] for number, fate in enumerate(tables["fate"][1])}


def test_area_follows_frequency():
    probabilities = read_arrays(folder() / "planted/stacks/00/tables.safetensors")["probabilities"]
    page = client().get("/runs/planted/concepts").text
    areas = np.zeros(len(probabilities))
    for _, number, style in TILE.findall(page):
        numbers = dict(part.split(":") for part in style.split(";"))
        areas[int(number)] = float(numbers["width"][:-1]) * float(numbers["height"][:-1])
    large = probabilities > 0.2 * probabilities.mean()
    assert np.allclose(areas[large] / areas[large].sum(), probabilities[large] / probabilities[large].sum(), rtol=0.01)


def test_a_fate_can_be_chosen_alone():
    tables = read_arrays(folder() / "planted/stacks/00/tables.safetensors")
    fate = CONCEPT_FATES[tables["fate"][0][0]]
    page = client().get(f"/runs/planted/concepts?stack=0&member=0&fate={fate}").text
    assert {name for name, *_ in TILE.findall(page)} == {fate}
    assert client().get("/runs/planted/concepts?fate=lost").status_code == 400


def test_a_concept_names_its_numbers_and_the_features_behind_it():
    tables = read_arrays(folder() / "planted/stacks/00/tables.safetensors")
    page = client().get("/runs/planted/concepts/3?stack=0&member=1").text
    assert f"{tables['best_cosine'][1, 3]:.3f}" in page
    assert f"{tables['probabilities'][3]:.3f}" in page
    assert f'href="/runs/planted/features/0/1/{tables["best_feature"][1, 3]}"' in page
    assert client().get("/runs/planted/concepts/16").status_code == 400


def test_verdicts_of_a_pipeline_are_those_of_its_file():
    cards = read_json(folder() / "pipeline/stacks/00/features.json")["members"]["0"]["concepts"]
    page = client().get("/runs/pipeline/concepts?stack=0&member=0").text
    assert {int(n): fate for fate, n, _ in TILE.findall(page)} == {n: card["verdict"] for n, card in enumerate(cards)}


def test_without_truth_the_page_says_so():
    page = client().get("/runs/models/concepts")
    assert page.status_code == 200
    assert "no planted truth" in page.text
    assert "/runs/models/concepts" not in client().get("/runs/models/heads").text
