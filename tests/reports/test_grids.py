"""A run that swept sizes is read as grids, beside the source's values where world and loss are the source's."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reports.run_files import start_run
from unbraid.reports.grids import families, grids, ratio
from unbraid.reports.matrix_figures import MATRICES, matrices
from unbraid.reports.page import write_report
from unbraid.reports.published_grid import published
from unbraid.reports.run_results import RunResults, read_results
from unbraid.reports.tables import print_run
from unbraid.reports.timeline_figures import Life, timelines
from unbraid.reports.tracking_figures import dead_entries, fates
from unbraid.storage.files import write_arrays, write_bytes, write_json
from unbraid.storage.runs import Run

SIZES, WEIGHTS = [128, 512, 2048, 8192], [0.01, 0.1, 0.1778279410038923, 0.3, 0.4]
FIRING = [{"kind": "independent", "form": "published"}, {"kind": "correlated", "form": "published"}]
STEPS, PLANTED = np.array([0, 1, 10, 100]), 512
CONFIG: dict[str, Any] = {
    "title": "A grid",
    "scale": "small",
    "seed": 0,
    "world": {
        "kind": "superposition",
        "dimensions": 256,
        "n_features": 512,
        "decay": 0.99,
        "active": 5.0,
        "strength": "product",
        "noise": 0.0,
        "firing": FIRING[0],
    },
    "dictionary": {"d_sae": 128, "activation": {"kind": "relu"}, "init": "published"},
    "training": {"steps": 100, "batch": 64, "learning_rate": 1e-3, "reconstruction_loss": "mean_square"},
    "mechanisms": {"sparsity": {"weight": 0.01, "form": "published"}},
    "sweep": {
        "world.firing": FIRING,
        "dictionary.d_sae": SIZES,
        "mechanisms.sparsity.weight": WEIGHTS,
        "seed": [0],
    },
}


def write_grid(path: Path, tracked: bool = True, **world: Any) -> Run:
    """A stack a firing and size, whose members are the weights."""
    run = start_run(path, "dictionaries", "mmcs", {**CONFIG, "world": {**CONFIG["world"], **world}})
    settings = []
    stacks = list(itertools.product(FIRING, SIZES))
    for (stack, (firing, size)), (place, weight) in itertools.product(enumerate(stacks), enumerate(WEIGHTS)):
        swept = {"world.firing": firing, "dictionary.d_sae": size, "mechanisms.sparsity.weight": weight}
        label = f"firing {firing['kind']} published, features {size}, weight {weight:g}"
        members = [{"stack": stack, "member": place, "seed": 0, "replicate": "0/0"}]
        settings.append({"label": label, "setting": swept, "members": members, "metrics": metrics(size, weight)})
    differences = [
        {"setting": i, "reference": 0, "metric": m, "value": 0.1, "interval": None, "pairs": 1, "verdict": "undecided"}
        for i in range(1, len(settings))
        for m in ("mmcs", "f1")
    ]
    write_json(path / "scores.json", {"settings": settings, "differences": differences})
    for stack, (_, size) in enumerate(stacks):
        write_stack(run.stack(stack), size, tracked)
    return run


def metrics(size: int, weight: float) -> dict[str, Any]:
    found = {"mmcs": 0.5 + weight, "reconstruction_error": 3.21e-4 * weight, "dead": size / 8, "l0": 7.0}
    if size < max(SIZES):
        found["mmcs_larger"] = 0.6
    return {
        name: {"value": value, "interval": None, "chance": value / 2, "ceiling": 0.99, "members": [value]}
        for name, value in found.items()
    }


def write_stack(folder: Path, size: int, tracked: bool) -> None:
    members, rng = len(WEIGHTS), np.random.default_rng(size)
    line = (
        b'{"step": 100, "terms": {"reconstruction": [1, 1, 1, 1, 1]}, "l0": [1, 1, 1, 1, 1], "mmcs": [1, 1, 1, 1, 1]}\n'
    )
    write_bytes(folder / "log.jsonl", line)
    tables = {
        "best_cosine": rng.uniform(0.2, 1, (members, PLANTED)),
        "density": rng.uniform(0.01, 0.4, (members, size)),
        "probabilities": 0.01 * 0.99 ** np.arange(PLANTED),
    }
    write_arrays(folder / "tables.safetensors", tables)
    if tracked:
        counts = {name: rng.integers(0, 50, (2, members, len(STEPS))) for name in ("learned", "unlearned", "moved")}
        write_arrays(
            folder / "tracking.safetensors",
            {
                **counts,
                "still": np.full((2, members, len(STEPS)), 77),
                "steps": STEPS,
                "thresholds": np.array([0.7, 0.9]),
                "best": rng.uniform(0.5, 1, (members, len(STEPS), PLANTED)),
                "entry": rng.integers(0, 2, (members, len(STEPS), PLANTED)),
                "dead": np.tile(STEPS * size // 100, (members, 1)),
                "mean_change": np.full((2, members, len(STEPS)), np.nan),
            },
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return write_grid(tmp_path_factory.mktemp("grids") / "grid")


@pytest.fixture(scope="module")
def results(run: Run) -> RunResults:
    return read_results(run)


def test_each_world_is_a_grid_and_every_setting_is_in_its_cell(results: RunResults):
    first, second = grids(results)
    assert (first.name, second.name) == ("firing independent published", "firing correlated published")
    assert (first.rows, first.columns, first.planted) == (SIZES, WEIGHTS, PLANTED)
    assert len(first.cells) == len(second.cells) == len(SIZES) * len(WEIGHTS)
    for (row, column), setting in second.cells.items():
        assert f"correlated published, features {row}, weight {column:g}" in setting.label


def test_a_run_that_swept_no_sizes_has_no_grid(make_run):
    results = read_results(make_run())
    assert grids(results) == []
    assert not matrices(results).figures
    assert [label for label, _ in families(results)[0].settings] == ["weight 0.05", "weight 0.15"]


def test_families_are_the_last_column_a_line_a_size(results: RunResults):
    family = families(results)[1]
    assert family.name == "firing correlated published, sparsity 0.4"
    assert [label for label, _ in family.settings] == ["128 (× 0.25)", "512 (× 1)", "2,048 (× 4)", "8,192 (× 16)"]
    assert ratio(256, 512) == "256 (× 0.5)"


def test_the_source_is_matched_to_the_generator_not_to_its_label(results: RunResults):
    """Published figures: the panel the source labels "correlated" is that of the independent generator."""
    independent, correlated = grids(results)
    ours = published(results, independent.first(), independent.across)
    assert ours is not None
    assert ours.label == "correlated"
    assert ours.value("mmcs", 512, 0.1778) == 0.966
    assert ours.value("reconstruction_error", 128, 0.01) == 7e-5
    theirs = published(results, correlated.first(), correlated.across)
    assert theirs is not None
    assert theirs.label == "uncorrelated"
    assert theirs.value("mmcs", 512, 0.1) == 0.989
    assert theirs.value("dead", 128, 0.1778) == 70
    assert theirs.value("dead", 256, 0.01) is None
    assert theirs.value("mmcs", 1024, 0.01) is None


@pytest.mark.parametrize("change", [{"dimensions": 128}, {"strength": "uniform"}, {"noise": 0.1}])
def test_another_world_has_nothing_beside_it(change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("unbraid.reports.matrix_figures.png", lambda figure: b"")
    results = read_results(write_grid(tmp_path / "other", tracked=False, **change))
    grid = grids(results)[0]
    assert published(results, grid.first(), grid.across) is None
    assert "In brackets: the value" not in matrices(results).caption


def test_four_matrices_a_world_tell_every_cell(results: RunResults):
    section = matrices(results)
    assert len(section.figures) == 8
    assert "firing independent published is the panel it labels “correlated”" in section.caption
    described = {figure.name: figure.alt for figure in section.figures}
    assert "512 entries .510, .600, .678, .800, .900" in described["matrix-mmcs-1"]
    assert "8192 entries –, –, –, –, –" in described["matrix-mmcs-larger-2"]
    assert "8192 entries 1,024, 1,024" in described["matrix-dead-1"]


def test_numbers_in_cells_are_short_and_true():
    recon, mmcs, _, dead = MATRICES
    assert [recon.text(value) for value in (7e-5, 1.65e-3, 1e-9, float("nan"))] == ["0.70", "16.5", "0", "–"]
    assert [mmcs.text(value) for value in (0.9714, 1.0, 0.0, None)] == [".971", "1.000", ".000", "–"]
    assert [dead.text(value) for value in (0.0, 12345.0)] == ["0", "12,345"]


def test_tracking_is_drawn_a_line_a_size(results: RunResults):
    section = dead_entries(results)
    assert len(section.figures) == 4
    assert "128 (× 0.25) 128; 512 (× 1) 512" in section.figures[0].alt
    drawn = fates(results)
    assert len(drawn.figures) == 2 * 6
    assert "512 (× 1) 77, 77" in drawn.figures[5].alt
    assert len(timelines(results).figures) == 6


def test_untracked_runs_have_no_plates_of_tracking(make_run):
    results = read_results(make_run())
    assert not any(draw(results).figures for draw in (dead_entries, fates, timelines))


def test_a_life_is_born_moves_and_is_lost():
    found, entry = np.array([False, True, True, True, False, True]), np.array([1, 1, 1, 4, 4, 4])
    life = Life(found, entry)
    assert np.flatnonzero(life.born()).tolist() == [1, 5]
    assert np.flatnonzero(life.moved()).tolist() == [3]
    assert np.flatnonzero(life.lost()).tolist() == [4]


@pytest.mark.usefixtures("undrawn")
def test_a_page_of_very_many_settings_shows_the_best_and_folds_the_rest(run: Run, tmp_path: Path):
    page = write_report([run], tmp_path / "page.html").read_text()
    assert "Scale: small." in page
    assert "The 8 settings of the highest MMCS" in page
    assert "<summary>All 40 settings</summary>" in page
    assert "<summary>MMCS of 39 settings; other scores are in scores.json</summary>" in page
    open_part = page.split("<details>")[1].split("</details>")[-1]
    assert open_part.count('<th scope="row">') < 60


def test_a_terminal_is_not_flooded_by_very_many_settings(run: Run, capsys: pytest.CaptureFixture[str]):
    print_run(run)
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) < 80
    assert "The 5 settings of the highest MMCS; all 40 are in" in " ".join(printed.split())
