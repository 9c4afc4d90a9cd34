"""What a report of embeddings shows follows from what is on disk."""

from pathlib import Path

import numpy as np
import pytest

from tests.reports.run_files import start_run
from unbraid.reports.embedding_figures import embeddings
from unbraid.reports.embedding_sentences import error_bar, headline, what_was_run
from unbraid.reports.page import write_report
from unbraid.reports.run_results import RunResults, read_results
from unbraid.storage.files import write_arrays, write_json

EVENNESS = {0.9: 0.3, 1.0: 0.6}
POINTS, FEATURES = 20, 8


def write_embeddings(path: Path, decays: tuple[float, ...] = tuple(EVENNESS)) -> RunResults:
    """A stack a setting, two worlds in each; the first quarter of the samples is empty."""
    config = {
        "title": "Embeddings by hand",
        "world": {"kind": "superposition", "dimensions": 4, "n_features": FEATURES, "active": 2.0, "decay": 0.9},
        "embedding": {"kind": "tsne", "perplexity": 5.0},
        "samples": {"n": POINTS, "batch": "all"},
        "sweep": {"world.decay": list(decays), "world.seed": [0, 1]},
    }
    run = start_run(path, "embedding", "evenness", config)
    cards = []
    for stack, decay in enumerate(decays):
        value = EVENNESS[decay]
        bounds = {"interval": [value - 0.1, value + 0.1], "chance": 0.8, "ceiling": None}
        metrics = {"evenness": {"value": value, **bounds, "members": [value, value]}}
        members = [{"stack": stack, "member": seed, "seed": 0, "replicate": f"{seed}/0"} for seed in (0, 1)]
        label, swept = f"decay {decay:g}", {"world.decay": decay}
        cards.append({"label": label, "setting": swept, "members": members, "metrics": metrics})
        strongest = np.arange(POINTS) % FEATURES
        strongest[: POINTS // 4] = -1
        points = np.random.default_rng(stack).normal(size=(POINTS, 2))
        tables = {"probabilities": np.full(FEATURES, 0.2), "points.0": points, "strongest.0": strongest}
        write_arrays(run.stack(stack) / "tables.safetensors", tables)
    write_json(path / "scores.json", {"settings": cards, "differences": []})
    return read_results(run)


@pytest.fixture
def results(tmp_path: Path) -> RunResults:
    return write_embeddings(tmp_path / "embedding")


def test_what_was_run_names_method_samples_and_world(results):
    described = what_was_run(results.config)
    assert described[0] == "4 embeddings (2 settings × 2 replicates) by tsne of 20 samples, drawn in one draw."
    assert described[1].startswith("World: 8 planted directions in 4 dimensions")
    assert described[2] == "Compared: world.decay = 0.9 or 1."


def test_the_headline_goes_from_the_least_even_to_the_most_even(results, tmp_path):
    assert headline(results) == (
        "Evenness from 0.300 [0.200, 0.400] (decay 0.9) to 0.600 [0.500, 0.700] (decay 1); 1 is as even as uniform "
        "points."
    )
    alone = write_embeddings(tmp_path / "alone", (1.0,))
    assert headline(alone) == "Evenness 0.600 [0.500, 0.700] (decay 1); 1 is as even as uniform points."
    assert "differ in world.seed (2 planted worlds with their data)." in error_bar(results)


def test_every_setting_has_its_samples_drawn(results):
    figures = embeddings(results).figures
    assert [figure.name for figure in figures] == ["embedding-1", "embedding-2"]
    assert figures[0].alt == "decay 0.9: t-SNE of 20 samples; evenness 0.300, 25% empty."
    assert all(figure.png.startswith(b"\x89PNG") for figure in figures)


def test_the_page_says_what_chance_is_and_speaks_of_no_dictionary(results, undrawn, tmp_path):
    page = write_report([results.run], tmp_path / "page.html").read_text()
    assert "strengths permuted among them" in page
    assert "dictionar" not in page
    assert "oracle" not in page
