"""Reading a run back: the right members of the right stacks."""

import numpy as np
import pytest

from unbraid.reports.configurations import flat_sweep, sweep_size
from unbraid.reports.run_results import read_results
from unbraid.storage.files import read_arrays


def test_tables_and_curves_follow_the_members_through_the_stacks(make_run):
    run = make_run(world_seeds=(0, 1), seeds=(0, 1, 2))
    results = read_results(run)
    second = results.settings[1]
    stacks = [read_arrays(folder / "tables.safetensors")["best_cosine"][3:] for folder in run.stacks()]
    assert np.array_equal(results.table(second, "best_cosine"), np.concatenate(stacks).astype(float))
    curve = results.curve(second, "sparsity", term=True)
    assert curve is not None
    assert curve.steps.tolist() == [10, 20, 30, 40]
    assert np.allclose(curve.values[:, -1], [0.13, 0.14, 0.15, 0.13, 0.14, 0.15])
    assert results.curve(second, "nothing_logged") is None
    kept = results.cosines(second)
    assert kept is not None
    assert np.array_equal(kept, read_arrays(run.stack(0) / "tables.safetensors")["cosines.3"])


def test_drawn_settings_span_the_ranking_and_panels_are_among_them(make_run):
    results = read_results(make_run(weights=tuple(range(1, 21)), seeds=(0,)))
    drawn, panels = ([setting.index for setting in found] for found in (results.drawn, results.panels))
    assert len(drawn) == 8
    assert len(panels) == 4
    assert set(panels) < set(drawn)
    assert {drawn[0], panels[0]} == {0}
    assert {drawn[-1], panels[-1]} == {19}


@pytest.mark.parametrize(
    ("sweep", "size"),
    [
        ({}, (1, 1)),
        ({"seed": [0, 1, 2]}, (1, 3)),
        ({"world.seed": [0, 1], "seed": [0, 1, 2], "training.batch": [1, 2, 3, 4]}, (4, 6)),
        ({"world": {"seed": [0, 1]}, "training": {"batch": [1, 2, 3]}}, (3, 2)),
    ],
)
def test_the_size_of_a_sweep(sweep, size):
    assert sweep_size({"sweep": sweep}) == size
    assert sweep_size({"sweep": sweep, "cases": {"a": {}, "b": {}}}) == (2 * size[0], size[1])


def test_nested_and_quoted_paths_mean_the_same():
    assert flat_sweep({"sweep": {"world": {"seed": [0]}}}) == flat_sweep({"sweep": {"world.seed": [0]}})
