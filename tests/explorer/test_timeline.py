"""The timeline: when each concept was learned, moved and unlearned, as the tracked tables say."""

import re

import numpy as np

from tests.explorer.small import client, folder
from unbraid.explorer.timeline import Lives
from unbraid.storage.files import read_arrays


def test_a_life_of_each_kind():
    best = np.array([[0.1, 0.95, 0.1], [0.95, 0.95, 0.2], [0.5, 0.96, 0.3], [0.92, 0.97, 0.2]])
    entry = np.array([[0, 1, 2], [0, 4, 2], [0, 4, 2], [3, 4, 2]])
    lives = Lives(np.array([0, 10, 20, 30]), best, entry)
    assert lives.events(0) == [(1, "learned"), (2, "unlearned"), (3, "learned")]
    assert lives.events(1) == [(0, "learned"), (1, "moved")]
    assert lives.events(2) == []
    assert lives.order.tolist() == [1, 0, 2]
    assert lives.first.tolist() == [1, 0, 4]


def test_counts_are_those_of_the_tracker():
    tables = read_arrays(folder() / "planted/stacks/00/tracking.safetensors")
    page = client().get("/runs/planted/timeline?stack=0&member=0").text
    found = tables["best"][0] >= 0.9
    assert f"<strong>{found.any(0).sum()} of 16</strong>" in page
    assert f"<strong>{found[-1].sum()}</strong> at the last" in page
    at = np.flatnonzero(np.isclose(tables["thresholds"], 0.9))[0]
    assert f"Moved to another feature: {tables['moved'][at][0].sum()}." in page
    assert len(re.findall(r'class="mark learned" x=', page)) == tables["learned"][at][0].sum() + found[0].sum()


def test_without_tracking_the_page_says_how_to_get_it():
    page = client().get("/runs/pipeline/timeline").text
    assert "[tracking]" in page
