"""The activations of a trained model at a site, as shards with the factors of every token."""

import numpy as np
import pytest
import torch

from unbraid.activations import shards
from unbraid.activations.shards import read_manifest
from unbraid.errors import UserError
from unbraid.models import Gauge, Transformer, start_models
from unbraid.pipeline import capture_model as module
from unbraid.pipeline.capture_model import ActivationsConfig, capture_model, site_width
from unbraid.worlds.activations import Activations
from unbraid.worlds.stories import Stories

WORLD = Stories(people=2, places=3, rounds=2)
PLAIN = Transformer(d_model=8, heads=2, layers=2, d_ff=8)
GAUGE = Gauge(irreps="2x0e + 1x1e", layers=1)


def started(settings, seed=0):
    return start_models(settings, len(WORLD.vocabulary), WORLD.length, len(WORLD.answers), [seed])


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(module, "SHARD_STORIES", 64)


def test_rows_are_what_the_model_has_token_by_token_with_its_factors(tmp_path, small_shards):
    """By hand: story after story, one at a time, no padding."""
    model, site = started(PLAIN), "blocks.1.hook_resid_mid"
    shards = capture_model(model, WORLD, ActivationsConfig(site=site, stories=100), tmp_path / "kept")
    rows, tokens, factors, documents = [], [], [], []
    for start in range(0, 100, 64):
        batch = WORLD.batch(start // 64, 64, split="capture").first(100 - start)
        for story in range(len(batch.tokens)):
            length = int(batch.mask[story].sum())
            words = batch.tokens[story, :length]
            rows.append(model.forward(words[None], [site]).recorded[site][0, 0].detach())
            tokens += words.tolist()
            factors += batch.factors["place"][story, :length].tolist()
            documents += [start + story] * length
    everything = np.arange(len(shards))
    torch.testing.assert_close(shards.activations(everything), torch.cat(rows), rtol=1e-4, atol=1e-5)
    assert shards.column("tokens", everything).tolist() == tokens
    assert shards.column("factor.place", everything).tolist() == factors
    assert shards.column("documents", everything).tolist() == documents
    assert len(shards.manifest.shards) == 2
    assert shards.manifest.origin.factors == WORLD.factors


@pytest.mark.parametrize("settings", [PLAIN, GAUGE], ids=["plain", "gauge"])
def test_every_site_that_is_offered_can_be_recorded(tmp_path, settings):
    model = started(settings)
    for number, site in enumerate(settings.sites()):
        shards = capture_model(model, WORLD, ActivationsConfig(site=site, stories=50), tmp_path / str(number))
        assert shards.width == site_width(settings, WORLD, site)
        assert torch.isfinite(shards.activations(np.arange(len(shards)))).all()


def test_what_heads_have_lies_side_by_side(tmp_path):
    model, site = started(PLAIN), "blocks.0.attn.hook_z"
    shards = capture_model(model, WORLD, ActivationsConfig(site=site, stories=50), tmp_path / "kept")
    first = WORLD.batch(0, 64, split="capture").first(1)
    heads = model.forward(first.tokens, [site]).recorded[site][0, 0]  # h t e
    by_hand = torch.cat([heads[0], heads[1]], -1)[first.mask[0]]
    torch.testing.assert_close(shards.activations(np.arange(len(by_hand))), by_hand.detach(), rtol=1e-4, atol=1e-5)


def test_a_recording_that_was_stopped_goes_on_to_the_same_files(tmp_path, small_shards, monkeypatch):
    model, capture = started(PLAIN), ActivationsConfig(stories=150)
    whole = capture_model(model, WORLD, capture, tmp_path / "whole").manifest
    write, written = shards.write_shard, []

    def once(folder, number, tensors):
        if number:
            raise KeyboardInterrupt
        written.append(number)
        return write(folder, number, tensors)

    monkeypatch.setattr(shards, "write_shard", once)
    with pytest.raises(KeyboardInterrupt):
        capture_model(model, WORLD, capture, tmp_path / "stopped")
    assert not read_manifest(tmp_path / "stopped").is_finished
    monkeypatch.setattr(shards, "write_shard", lambda *given: written.append(given[1]) or write(*given))
    assert capture_model(model, WORLD, capture, tmp_path / "stopped").manifest == whole
    assert written == [0, 1, 2], "the first was not made again"
    assert read_manifest(tmp_path / "stopped").is_finished


def test_a_folder_with_another_models_activations_is_refused(tmp_path):
    capture_model(started(PLAIN), WORLD, ActivationsConfig(stories=50), tmp_path / "kept")
    with pytest.raises(UserError, match="holds activations with weights"):
        capture_model(started(PLAIN, seed=1), WORLD, ActivationsConfig(stories=50), tmp_path / "kept")


def test_a_world_tells_whole_stories_that_training_never_sees(tmp_path):
    capture_model(started(PLAIN), WORLD, ActivationsConfig(stories=400), tmp_path / "kept")
    world = Activations.model_validate({"path": str(tmp_path / "kept")})
    rows = world.labelled_rows(10**6)
    assert set(rows.factors) == set(WORLD.factors)
    lengths = np.unique(rows.documents, return_counts=True)[1]
    starts = np.flatnonzero(rows.positions == 0)
    assert len(starts) == len(lengths)
    assert (np.diff(np.append(starts, len(rows.documents))) == lengths).all()
    trained = set(world._shards.column("documents", world._order("train").in_order(10**6)).tolist())
    assert len(trained) > 300
    assert not trained & set(rows.documents.tolist())


def test_shards_without_factors_read_as_before(tmp_path, keep_as_shards, rng):
    keep_as_shards(tmp_path / "kept", torch.from_numpy(rng.standard_normal((800, 4))).float())
    assert read_manifest(tmp_path / "kept").origin.factors == {}
    assert Activations.model_validate({"path": str(tmp_path / "kept")}).factors == {}
