"""Runs of baselines and of embeddings: what is fitted, drawn and scored, and how they go on after a stop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.pipeline.running import Dying, Killed, Recorded, create, finish, run_config
from unbraid.config import read_toml
from unbraid.config.sweep import at_scale, scales_of
from unbraid.dictionaries.baselines import KMeans
from unbraid.errors import UserError
from unbraid.metrics import recovery
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import Samples
from unbraid.pipeline.trained import load_stack
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run
from unbraid.studies.shipped import shipped
from unbraid.worlds import Superposition
from unbraid.worlds.firing import Correlated

SMALL = {"dimensions": 16, "n_features": 24, "active": 2.0}
BASELINES: dict[str, Any] = {
    "world": SMALL,
    "baseline": {"kind": "kmeans", "n_components": 24},
    "evaluation": {"samples": 300},
    "sweep": {
        "baseline": [{"kind": "kmeans", "form": "corrected"}, {"kind": "pca"}],
        "samples.n": [40, 300],
        "world.seed": [0, 1],
    },
}
EMBEDDINGS: dict[str, Any] = {
    "kind": "embedding",
    "world": SMALL,
    "embedding": {"kind": "tsne", "perplexity": 10.0, "iterations": 250},
    "samples": {"n": 128},
    "sweep": {"world.decay": [0.8, 1.0], "world.seed": [0, 1]},
}


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(tmp_path_factory.mktemp("runs"), "baselines", BASELINES)


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_config(tmp_path_factory.mktemp("runs"), "embeddings", EMBEDDINGS)


def test_a_baseline_in_a_run_is_the_one_fitted_by_hand(baselines: Run):
    """k-means of world 1 on 300 samples: the second member of the second group."""
    world = Superposition(**SMALL, seed=1)
    x = torch.cat([world.batch(0, 256).x, world.batch(1, 44).x])
    expected = recovery.mmcs(recovery.cosines(world.directions, KMeans(n_components=24).fit(x).directions)).item()
    assert read_json(baselines.stack(1) / "scores.json")["values"]["mmcs"][1] == pytest.approx(expected, abs=1e-5)
    card = next(setting for setting in baselines.scores()["settings"] if setting["setting"]["samples.n"] == 300)
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


@pytest.mark.parametrize("config", [BASELINES, EMBEDDINGS], ids=["baselines", "embeddings"])
def test_a_run_that_was_killed_goes_on_with_the_same_numbers(config: dict[str, Any], tmp_path: Path, request):
    whole: Run = request.getfixturevalue("embeddings" if "kind" in config else "baselines")
    plan = expand(config, "here")
    (stage,) = plan.stacks[-1].first.stages(plan.stacks[-1])
    run = create(tmp_path, "victim", config)
    with pytest.raises(Killed):
        finish(run, Dying(stage.name, stage.steps))
    recorded = Recorded()
    assert finish(run, recorded).scores() == whole.scores()
    assert len(recorded.planned) <= 1, "the stacks before the last were made"


def test_an_embedding_keeps_its_points_and_who_fired_strongest(embeddings: Run):
    tables = read_arrays(embeddings.stack(0) / "tables.safetensors")
    world = Superposition(**SMALL, decay=0.8)
    truth = world.batch(0, 128).truth.to_dense()[0]
    assert tables["points.0"].shape == tables["null.0"].shape == (128, 2)
    expected = torch.where(truth.any(1), truth.argmax(1), -1)
    assert tables["strongest.0"].tolist() == expected.tolist()
    empty = read_json(embeddings.stack(0) / "scores.json")["values"]["empty"][0]
    assert empty == pytest.approx((expected < 0).double().mean().item())


def test_samples_in_one_draw_or_many():
    """In the published correlated world nearly half of the features are silent in one draw, few in many."""
    world = Superposition(firing=Correlated(form="published"), decay=1.0)
    silent = {}
    for batch in (64, "all"):
        counts = sum(drawn.truth.counts()[0] for drawn in Samples(n=2048, batch=batch).batches(world))
        silent[batch] = (torch.as_tensor(counts) < 4).double().mean().item()
    assert silent[64] < 0.02
    assert 0.3 < silent["all"] < 0.5


def test_a_run_without_trained_stacks_says_so(baselines: Run):
    with pytest.raises(UserError, match="holds no trained dictionaries in stack 0"):
        load_stack(baselines.path)


@pytest.mark.parametrize(
    "path", [path for path in shipped().values() if "baselines" in path.stem or "tsne" in path.stem], ids=str
)
def test_shipped_studies_have_at_least_five_worlds_at_every_scale(path: Path):
    data = read_toml(path)
    assert path.read_text().startswith("# unbraid run ")
    for scale in scales_of(data, str(path)) or [None]:
        members = expand(at_scale(data, scale, str(path)), str(path)).members
        assert {member.experiment.world.seed for member in members} >= {0, 1, 2, 3, 4}
