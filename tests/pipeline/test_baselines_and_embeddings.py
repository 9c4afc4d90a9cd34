"""Runs of baselines and of embeddings: from a configuration to a report, through the same commands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from unbraid.sweeps.experiment import Data
from unbraid.sweeps.grid import resolve
from unbraid.sweeps.plan import plan

from unbraid.config import merge, read_toml, to_toml
from unbraid.dictionaries.baselines import KMeans
from unbraid.errors import UserError
from unbraid.metrics import recovery
from unbraid.pipeline.executors import execute
from unbraid.pipeline.expand import expand
from unbraid.pipeline.trained import load_stack
from unbraid.progress import Silent
from unbraid.reports.page import write_report
from unbraid.reports.tables import print_run, print_runs, run_as_json
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run
from unbraid.studies.shipped import shipped
from unbraid.worlds import Superposition
from unbraid.worlds.firing import Correlated

SMALL = {"dimensions": 16, "n_features": 24, "active": 2.0}
BASELINES: dict[str, Any] = {
    "world": SMALL,
    "baseline": {"kind": "kmeans", "n_components": 24},
    "scoring": {"samples": 300},
    "sweep": {
        "baseline": [{"kind": "kmeans", "form": "corrected"}, {"kind": "pca"}],
        "data.samples": [40, 300],
        "world.seed": [0, 1],
    },
}
PICTURES: dict[str, Any] = {
    "world": SMALL,
    "embedding": {"kind": "tsne", "perplexity": 10.0, "iterations": 250},
    "data": {"samples": 128},
    "sweep": {"world.decay": [0.8, 1.0], "world.seed": [0, 1]},
}


def finished(folder: Path, data: dict[str, Any]) -> Run:
    run = Run.create(folder, "one", to_toml(resolve(data, "here")))
    execute(run, Silent())
    return run


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished(tmp_path_factory.mktemp("runs"), BASELINES)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished(tmp_path_factory.mktemp("runs"), PICTURES)


def test_baselines_of_one_kind_and_world_share_a_folder_whatever_their_data():
    groups = plan(expand(BASELINES, "here"))
    assert [len(group) for group in groups] == [2, 2, 2, 2]
    assert {member.experiment.data.samples for member in groups[0]} == {40, 300}


def test_a_baseline_in_a_run_is_the_one_fitted_by_hand(baselines: Run):
    """k-means of world 1 on 300 samples: the second member of the second group."""
    world = Superposition(**SMALL, seed=1)
    x = torch.cat([world.batch(0, 256).x, world.batch(1, 44).x])
    expected = recovery.mmcs(recovery.cosines(world.directions, KMeans(n_components=24).fit(x).directions)).item()
    assert read_json(baselines.stack(1) / "scores.json")["values"]["mmcs"][1] == pytest.approx(expected, abs=1e-5)
    card = next(one for one in baselines.scores()["settings"] if one["setting"]["data.samples"] == 300)
    assert card["metrics"]["mmcs"]["members"][1] == pytest.approx(expected, abs=1e-5)


def test_how_often_each_feature_was_seen_is_kept(baselines: Run):
    world = Superposition(**SMALL)
    fired = [world.batch(0, 256).truth.to_dense()[0] != 0, world.batch(1, 44).truth.to_dense()[0] != 0]
    seen = read_arrays(baselines.stack(0) / "tables.safetensors")["seen"][1]
    np.testing.assert_allclose(seen, torch.cat(fired).double().mean(0).numpy(), atol=1e-7)


def test_each_member_has_the_chance_of_the_directions_it_found(baselines: Run):
    """PCA of 16 dimensions finds 16 at most, whatever is asked."""
    pca = read_json(baselines.stack(2) / "scores.json")
    assert pca["values"]["directions"] == [16, 16]
    assert len(pca["chance"]["mmcs"]) == 2
    kmeans = read_json(baselines.stack(0) / "scores.json")
    assert kmeans["chance"]["mmcs"][1] > pca["chance"]["mmcs"][1]


def test_a_run_of_baselines_goes_on_where_it_stopped_with_the_same_numbers(tmp_path: Path, baselines: Run):
    again = finished(tmp_path, BASELINES)
    (again.stack(3) / "scores.json").unlink()
    (again.stack(3) / "tables.safetensors").unlink()
    kept = (again.stack(0) / "scores.json").stat().st_mtime_ns
    execute(again, Silent())
    assert again.scores() == baselines.scores()
    assert (again.stack(0) / "scores.json").stat().st_mtime_ns == kept


@pytest.mark.parametrize("which", ["baselines", "pictures"])
def test_reports_and_tables_say_what_there_is(which: str, request: pytest.FixtureRequest, capsys):
    run: Run = request.getfixturevalue(which)
    page = write_report([run], run.path / "report.html").read_text()
    names = {path.stem for path in (run.path / "figures").glob("*.png")}
    assert ("size-1" in names) == (which == "baselines")
    assert ("embedding-1" in names) == (which == "pictures")
    assert "score-mmcs" in names or "score-evenness" in names
    assert "dealt anew" in page or which == "baselines"
    print_run(run)
    print_runs([run], run.path.parent)
    assert "finished" in capsys.readouterr().out
    assert '"state": "finished"' in run_as_json(run)


def test_a_report_of_both_kinds_is_one_page(tmp_path: Path, baselines: Run, pictures: Run):
    assert "2 runs compared" in write_report([baselines, pictures], tmp_path / "report.html").read_text()


def test_a_picture_keeps_its_points_and_who_fired_strongest(pictures: Run):
    tables = read_arrays(pictures.stack(0) / "tables.safetensors")
    world = Superposition(**SMALL, decay=0.8)
    truth = world.batch(0, 128).truth.to_dense()[0]
    assert tables["points.0"].shape == tables["null.0"].shape == (128, 2)
    expected = torch.where(truth.any(1), truth.argmax(1), -1)
    assert tables["strongest.0"].tolist() == expected.tolist()
    empty = read_json(pictures.stack(0) / "scores.json")["values"]["empty"][0]
    assert empty == pytest.approx((expected < 0).double().mean().item())


def test_data_in_one_draw_or_many():
    """In the published correlated world nearly half of the features are silent in one draw, few in many."""
    world = Superposition(firing=Correlated(form="published"), decay=1.0)
    silent = {}
    for batch in (64, "all"):
        counts = sum(one.truth.counts()[0] for one in Data(samples=2048, batch=batch).batches(world))
        silent[batch] = (torch.as_tensor(counts) < 4).double().mean().item()
    assert silent[64] < 0.02
    assert 0.3 < silent["all"] < 0.5


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dictionary": {"d_sae": 8}}, "baseline and dictionary were both given"),
        ({"embedding": {"kind": "tsne"}}, "baseline and embedding were both given"),
        ({"baseline": {"seed": 3}}, "accepted: seed = 3 instead"),
        ({"data": {"batch": 0}}, "accepted: 1 or more, or 'all'"),
    ],
)
def test_what_does_not_go_together_is_refused(change: dict[str, Any], sentence: str):
    base = {"baseline": {"kind": "kmeans"}}
    with pytest.raises(UserError, match=sentence):
        expand(merge(base, change), "here")


def test_data_without_a_baseline_is_refused():
    with pytest.raises(UserError, match="accepted: training"):
        expand({"data": {"samples": 8}}, "here")


def test_a_perplexity_above_the_samples_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"less than data.samples"):
        finished(tmp_path, merge(PICTURES, {"data": {"samples": 8}}))


def test_a_run_without_trained_stacks_says_so(baselines: Run):
    with pytest.raises(UserError, match="holds no trained stack"):
        load_stack(baselines.path)


@pytest.mark.parametrize(
    "path", [path for path in shipped().values() if "baselines" in path.stem or "tsne" in path.stem]
)
def test_shipped_studies_are_whole_at_every_scale(path: Path):
    data = read_toml(path)
    scales = data.pop("scales", {"small": {}})
    assert path.read_text().startswith("# unbraid run ")
    for changes in scales.values():
        members = expand(merge(data, changes), str(path))
        assert {member.experiment.world.seed for member in members} == {0, 1, 2, 3, 4}
