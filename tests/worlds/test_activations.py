"""A world of captured activations trains and runs like any other, without a truth; its batches can be made again."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from unbraid import Dictionary, Sparsity, Superposition, Training, cli, fit, load_stack, score
from unbraid.config import check, to_toml
from unbraid.errors import UserError
from unbraid.pipeline.expand import expand
from unbraid.pipeline.kinds.dictionaries import DictionaryExperiment
from unbraid.worlds import Activations


@pytest.fixture
def folder(tmp_path, keep_as_shards):
    """Sparse features around a mean that is not 0."""
    rows = Superposition(dimensions=12, n_features=16, active=2.0).batch(0, 2000).x
    return keep_as_shards(tmp_path / "shards", 3 * rows + torch.linspace(-2, 2, 12))


@pytest.fixture
def world(folder):
    return Activations(path=str(folder))


def test_what_is_found_is_kept_in_the_configuration(world):
    assert (world.dimensions, world.model, world.site) == (12, "tiny", "model.layers.1")
    assert check(Activations, tomllib.loads(to_toml(world.to_dict())), "here") == world
    experiment = check(DictionaryExperiment, {"world": {"kind": "activations", "path": world.path}}, "here")
    assert experiment.world == world


def test_a_world_without_a_kind_has_truth():
    assert check(DictionaryExperiment, {"world": {"dimensions": 7}}, "here").world == Superposition(dimensions=7)


@pytest.mark.parametrize(("name", "value"), [("dimensions", 13), ("model", "gpt2"), ("site", "h.0"), ("checksum", "0")])
def test_shards_of_another_model_or_width_are_refused(world, name, value):
    with pytest.raises(UserError, match=f"holds activations with {name} .* was asked for"):
        check(Activations, {**world.to_dict(), name: value}, "here")


def test_a_batch_can_be_made_again_and_splits_differ(world):
    again = Activations(**world.to_dict())
    for split in ("train", "evaluation", "tracking"):
        assert torch.equal(world.batch(3, 50, split).x, again.batch(3, 50, split).x)
        assert not torch.equal(world.batch(3, 50, split).x, world.batch(4, 50, split).x)
    assert not torch.equal(world.batch(0, 50).x, Activations(path=world.path, seed=1).batch(0, 50).x)


@pytest.mark.parametrize("kind", ["none", "center", "scale", "center_and_scale"])
def test_rows_are_normalized_as_asked(folder, kind):
    x = torch.cat([Activations(path=str(folder), normalize=kind).batch(p, 180).x for p in range(10)])
    raw = torch.cat([Activations(path=str(folder), normalize="none").batch(p, 180).x for p in range(10)])
    assert (kind in ("center", "center_and_scale")) == bool(x.mean(0).norm() < 0.01)
    assert (kind in ("scale", "center_and_scale")) == bool(abs(x.norm(dim=1).mean() - 12**0.5) < 0.01)
    torch.testing.assert_close(Activations(path=str(folder), normalize=kind).normalization.undo(x), raw)


def test_it_trains_and_is_scored_without_a_truth(world):
    trained = fit(world, Dictionary(d_sae=24), [Sparsity(weight=0.5)], Training(steps=300, batch=64), seeds=[0, 1])
    found = score(trained, world, samples=1000)
    fired = {"l0", "density", "zeros", "dead", "redundancy", "correlation", "mean_correlation"}
    without_truth = fired | {"explained_variance", "reconstruction_error"}
    assert set(found.values) == without_truth
    assert (found.values["explained_variance"] > 0.6).all()
    assert found.ceiling == {}
    assert found.chance["explained_variance"] == 0
    truth = world.batch(0, 600, "evaluation").x
    assert found.chance["reconstruction_error"] == pytest.approx(float(truth.var(0, correction=0).mean()), rel=0.2)
    assert "explained_variance" in str(found)


@pytest.mark.parametrize("more", [{"tracking": {"checks": 3}}, {"kind": "embedding"}])
def test_what_needs_a_truth_is_refused(world, more):
    with pytest.raises(UserError, match="needs a planted truth"):
        expand({"world": world.to_dict(), **more}, "here")


CONFIG = """
[world]
kind = "activations"
path = "{path}"
[dictionary]
d_sae = 20
[training]
steps = 40
batch = 32
[mechanisms.sparsity]
[evaluation]
samples = 200
[checkpoints]
log_every = 10
every = 20
[sweep]
seed = [0, 1]
"""


def ran(folder: Path, config: str, capsys) -> tuple[int, str, str]:
    (folder / "config.toml").write_text(config)
    code = cli.guarded(
        lambda: cli.app(["run", str(folder / "config.toml"), "--runs", str(folder / "runs"), "--name", "a"])
    )
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    "more",
    [
        '"mechanisms.sparsity.weight" = [0.1, 0.3]',
        '"dictionary.d_sae" = [10, 20]\n"training.learning_rate" = [0.001, 0.01]',
    ],
)
def test_a_run_says_that_there_is_no_truth(folder, tmp_path, capsys, more):
    code, out, err = ran(tmp_path, CONFIG.format(path=folder) + more, capsys)
    assert code == 0, err
    printed = " ".join(out.split())
    assert "No truth was planted" in printed
    assert "MMCS of" not in out
    page = (tmp_path / "runs" / "a" / "report.html").read_text()
    assert "No truth was planted" in page
    assert "tiny" in page.split("What was run")[1].split("</table>")[0]
    assert "model.layers.1" in page.split("What was run")[1].split("</table>")[0]
    assert "Explained variance" in page
    assert "oracle" not in page.split("The whole configuration")[0]
    settings = json.loads((tmp_path / "runs" / "a" / "scores.json").read_text())["settings"]
    assert all("mmcs" not in setting["metrics"] and "explained_variance" in setting["metrics"] for setting in settings)
    assert cli.guarded(lambda: cli.app(["list", "--runs", str(tmp_path / "runs")])) == 0


def test_a_baseline_runs_on_activations(folder, tmp_path, capsys):
    world = f'[world]\nkind = "activations"\npath = "{folder}"\n'
    rest = '[baseline]\nkind = "pca"\nn_components = 6\n[samples]\nn = 300\n[evaluation]\nsamples = 200\n'
    code, _, err = ran(tmp_path, world + rest, capsys)
    assert code == 0, err


def test_a_loaded_stack_takes_activations_as_the_model_has_them(folder, world, tmp_path, capsys):
    assert ran(tmp_path, CONFIG.format(path=folder), capsys)[0] == 0
    stack = load_stack(tmp_path / "runs" / "a")
    normalized = world.batch(0, 100, "evaluation").x
    raw = Activations(path=str(folder), normalize="none").batch(0, 100, "evaluation").x
    again = fit(world, Dictionary(d_sae=20), [Sparsity()], Training(steps=40, batch=32), seeds=range(2))
    expected = world.normalization.undo(again.decode(again.encode(normalized)))
    torch.testing.assert_close(stack.decode(stack.encode(raw)), expected, rtol=1e-3, atol=1e-3)


def test_a_run_on_shards_that_changed_is_refused(folder, tmp_path, keep_as_shards, capsys):
    """Resuming a finished run reads no shards; making it again does."""
    assert ran(tmp_path, CONFIG.format(path=folder), capsys)[0] == 0
    keep_as_shards(folder, torch.randn(2000, 12))
    assert cli.guarded(lambda: cli.app(["resume", str(tmp_path / "runs" / "a")])) == 0
    (tmp_path / "runs" / "a" / "checksums.json").unlink()
    code = cli.guarded(lambda: cli.app(["resume", str(tmp_path / "runs" / "a")]))
    assert code == 2
    assert "holds activations with checksum" in capsys.readouterr().err


def test_anything_else_is_not_a_world():
    with pytest.raises(UserError, match=r"world.kind is 'activation'; did you mean 'activations'"):
        check(DictionaryExperiment, {"world": {"kind": "activation"}}, "here")
    with pytest.raises(UserError, match=r"world.path was not given"):
        check(DictionaryExperiment, {"world": {"kind": "activations"}}, "here")


def test_every_row_of_an_epoch_is_seen_once(world):
    order = world._order("train")
    rows = np.concatenate([order.rows(position, 100) for position in range(-(-len(order) // 100))])[: len(order)]
    assert len(np.unique(rows)) == len(order)
