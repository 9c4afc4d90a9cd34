"""Dashboards of features for Neuronpedia: the layout and the fields of its bulk import, filled from a run."""

import gzip
import json

import pytest
import torch

import unbraid as ub
from tests.dictionaries.formats.conftest import autoencoder, run, same
from tests.explorer import small
from tests.test_cli import unbraid
from unbraid.dictionaries.formats.convert import export
from unbraid.errors import UserError
from unbraid.pipeline.trained import load_stack
from unbraid.storage.feature_index import FeatureIndex

# The records of `neuronpedia_utils.db_models`, as SAEDashboard's neuronpedia_export.py (commit 3ea1249) has them: what
# has no default there, and all there is.
NEEDED = {
    "release": {"name", "description", "creatorName", "creatorId"},
    "model": {"id", "instruct", "creatorId"},
    "sourceset": {"modelId", "name", "creatorId"},
    "source": {"id", "modelId", "setName", "creatorId"},
    "features": {"modelId", "layer", "index"},
    "activations": {
        *("id", "tokens", "index", "layer", "modelId", "maxValue", "maxValueTokenIndex", "minValue", "values"),
        "creatorId",
    },
}
MORE = {
    "release": "visibility isNewUi featured descriptionShort urls creatorEmail creatorNameShort defaultSourceSetName "
    "defaultSourceId defaultUmapSourceIds createdAt",
    "model": "displayNameShort displayName tlensId dimension visibility defaultSourceSetName defaultSourceId "
    "inferenceEnabled layers neuronsPerLayer createdAt owner updatedAt website",
    "sourceset": "hasDashboards visibility description type creatorName urls creatorEmail releaseName defaultOfModelId "
    "defaultRange defaultShowBreaks showDfa showCorrelated showHeadAttribution showUmap createdAt",
    "source": "hasDashboards inferenceEnabled inferenceHosts saelensConfig saelensRelease saelensSaeId hfRepoId "
    "hfFolderId visibility defaultOfModelId hasUmap hasUmapLogSparsity hasUmapClusters num_prompts "
    "num_tokens_in_prompt dataset notes createdAt",
    "features": "creatorId createdAt maxActApprox hasVector vector vectorLabel vectorDefaultSteerStrength hookName "
    "topkCosSimIndices topkCosSimValues neuron_alignment_indices neuron_alignment_values neuron_alignment_l1 "
    "correlated_neurons_indices correlated_neurons_pearson correlated_neurons_l1 correlated_features_indices "
    "correlated_features_pearson correlated_features_l1 neg_str neg_values pos_str pos_values frac_nonzero "
    "freq_hist_data_bar_heights freq_hist_data_bar_values logits_hist_data_bar_heights logits_hist_data_bar_values "
    "decoder_weights_dist sourceSetName",
    "activations": "dataSource dataIndex dfaValues dfaTargetIndex dfaMaxValue createdAt lossValues logitContributions "
    "binMin binMax binContains qualifyingTokenIndex zIndices zValues",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on the activations of a tiny model: `captured`."""
    made = tmp_path_factory.mktemp("runs")
    small.capture_run(made)
    return made


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("neuronpedia") / "out"
    written = export(load_stack(runs / "captured"), "neuronpedia", path, {"member": 0})
    assert written.check.codes <= 1e-5
    return path


def lines(path):
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in content.decode().splitlines()]


def source(exported):
    return exported / "model" / "0-hook-resid-post-captured-0"


def records(exported, kind):
    if kind in ("features", "activations"):
        return [line for file in sorted((source(exported) / kind).iterdir()) for line in lines(file)]
    return lines(source(exported) / f"{kind}.jsonl")


@pytest.mark.parametrize("kind", NEEDED)
def test_records_have_the_fields_of_the_import_and_no_others(kind, exported):
    found = records(exported, kind)
    assert found
    for record in found:
        assert NEEDED[kind] <= set(record)
        assert set(record) <= NEEDED[kind] | set(MORE[kind].split())


def test_every_feature_and_its_strongest_texts_are_those_of_the_index(exported, runs):
    index = FeatureIndex.open(runs / "captured/stacks/00")
    features = {int(record["index"]): record for record in records(exported, "features")}
    assert sorted(features) == list(range(24))
    for number, record in features.items():
        known = index.feature(0, number)
        assert record["frac_nonzero"] == known.numbers["rate"]
        assert record["maxActApprox"] == pytest.approx(known.numbers["largest"], abs=5e-4)
    shown = [record for record in records(exported, "activations") if record["binMin"] == -1]
    for record in shown:
        assert len(record["tokens"]) == len(record["values"])
        assert record["values"][record["maxValueTokenIndex"]] == record["maxValue"] == max(record["values"])
    top = max((record for record in shown if record["index"] == shown[0]["index"]), key=lambda one: one["maxValue"])
    assert top["maxValue"] == pytest.approx(features[int(top["index"])]["maxActApprox"], abs=1e-3)
    ids = [record["id"] for record in records(exported, "activations")]
    assert len(set(ids)) == len(ids)


def test_the_dictionary_is_beside_for_saelens(exported, runs):
    x = 3 * torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    same(run(load_stack(runs / "captured"), x), run(ub.load(exported / "sae"), x))


def test_a_planted_world_has_no_tokens_to_show(tmp_path):
    with pytest.raises(UserError, match="accepted: a run on a model's activations"):
        export(autoencoder("relu"), "neuronpedia", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_command_exports_a_run(runs, tmp_path, capsys):
    words = ["--format", "neuronpedia", "--member", "0", "-o", tmp_path / "out", "--runs", runs]
    code, out, err = unbraid(capsys, "export", "captured", *words)
    assert code == 0, err
    assert out.splitlines()[-1] == str(tmp_path / "out")
    assert (tmp_path / "out/sae/sparsity.safetensors").exists()
