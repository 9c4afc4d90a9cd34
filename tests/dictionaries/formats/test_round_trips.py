"""Ours written, read back and run: the same numbers; and what a format cannot hold is refused with the reason."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import unbraid as ub
from tests.dictionaries.formats.conftest import RULES, D, F, K, autoencoder, inputs, run, same, transcoder
from unbraid.dictionaries.formats import FORMATS
from unbraid.dictionaries.formats.convert import export
from unbraid.dictionaries.formats.format import Ran, probe, verify
from unbraid.errors import UserError

ALL = ("relu", "topk", "batchtopk", "jumprelu", "gated")
AUTOENCODERS = {
    "saelens": ALL,
    "dictionary_learning": ALL,
    "sparsify": ("topk",),
    "gemma_scope": ("relu", "batchtopk", "jumprelu"),
}
TRANSCODERS = {
    "saelens": ("relu", "batchtopk", "jumprelu"),
    "sparsify": ("topk",),
    "gemma_scope": ("relu", "batchtopk", "jumprelu"),
    "circuit_tracer": ("relu", "batchtopk", "jumprelu"),
}
SKIPS = {name: rules for name, rules in TRANSCODERS.items() if name != "gemma_scope"}
BECOMES = {"gemma_scope": "JumpRelu"}
"""What a rule is read as, where a format has only one."""


def cases(formats):
    return [(name, rule) for name, rules in formats.items() for rule in rules]


def lacking(formats, others=()):
    names = [name for name in FORMATS if name not in ("unbraid", "neuronpedia", *others)]
    return [(name, rule) for name in names for rule in RULES if rule not in formats.get(name, ())]


def wide_for(format):
    """Where targets must be as wide as inputs."""
    return D if format in ("sparsify", "circuit_tracer") else 4


def back(format, path):
    return ub.load(path / "ae.pt" if format == "dictionary_learning" else path)


@pytest.mark.parametrize("free", [False, True], ids=["unit rows", "free rows"])
@pytest.mark.parametrize(("format", "rule"), cases(AUTOENCODERS))
def test_an_autoencoder_comes_back(format, rule, free, tmp_path):
    stack, x = autoencoder(rule, free=free), inputs()
    written = export(stack, format, tmp_path / "autoencoder")
    assert written.check.codes <= 1e-5
    read = back(format, written.path)
    assert type(read.activation).__name__ == BECOMES.get(format, type(stack.activation).__name__)
    assert read.decoder_norm == stack.decoder_norm
    assert read.is_transcoder is False
    same(run(stack, x), run(read, x))


@pytest.mark.parametrize(
    ("format", "rule", "skip"), [(*c, False) for c in cases(TRANSCODERS)] + [(*c, True) for c in cases(SKIPS)]
)
def test_a_transcoder_comes_back(format, rule, skip, tmp_path):
    stack, x = transcoder(rule, skip, wide_for(format)), inputs()
    written = export(stack, format, tmp_path / "transcoder")
    assert written.check.codes <= 1e-5
    if format != "circuit_tracer":  # which is only written
        read = back(format, written.path)
        assert read.is_transcoder
        assert (read.skip is None) is not skip
        same(run(stack, x), run(read, x))


@pytest.mark.parametrize(("format", "rule"), cases(AUTOENCODERS))
def test_the_files_alone_say_what_a_dictionary_does(format, rule, tmp_path):
    """By the format's own formula, which is held against the libraries in test_golden."""
    stack, x = autoencoder(rule), inputs().double()
    path = export(stack, format, tmp_path / "d").path
    ran = FORMATS[format].run(path, x)
    double = probe(stack)[0]
    verify(double, ran, x, "here")
    same(run(double, x), (ran.codes, ran.reconstruction))


@pytest.mark.parametrize(("format", "rule"), lacking(AUTOENCODERS))
def test_a_rule_that_a_format_has_not_is_refused(format, rule, tmp_path):
    with pytest.raises(UserError, match="accepted") as refusal:
        export(autoencoder(rule), format, tmp_path / "d")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(("format", "rule"), lacking(TRANSCODERS))
def test_a_transcoder_that_a_format_has_not_is_refused(format, rule, tmp_path):
    with pytest.raises(UserError, match="accepted"):
        export(transcoder(rule, wide=wide_for(format)), format, tmp_path / "d")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("format", ["sparsify", "circuit_tracer"])
def test_targets_of_another_width_are_refused(format, tmp_path):
    rule = "topk" if format == "sparsify" else "relu"
    with pytest.raises(UserError, match="wide"):
        export(transcoder(rule), format, tmp_path / "d")


def test_several_members_and_inhibition_are_refused(tmp_path):
    with pytest.raises(UserError, match="hold one dictionary, and these are 2"):
        export(autoencoder("relu", members=2), "saelens", tmp_path / "d")
    inhibition = {
        "inhibitors": torch.zeros(1, F, 2, dtype=torch.int32),
        "inhibition_strength": torch.ones(1),
        "inhibition_threshold": torch.ones(1),
    }
    with pytest.raises(UserError, match="inhibit each other in use"):
        export(replace(autoencoder("relu"), inhibition=inhibition), "saelens", tmp_path / "d")


def test_without_a_pre_bias_nothing_is_folded(tmp_path):
    stack = ub.Stack.start(ub.Dictionary(d_sae=F), D, [0])
    assert export(stack, "gemma_scope", tmp_path / "d").notes == (
        "relu is written as a jump-relu with thresholds of 0",
    )
    same(run(stack, inputs()), run(ub.load(tmp_path / "d"), inputs()))


def test_an_untrained_batch_top_k_fires_where_it_is_positive(tmp_path):
    stack = ub.Stack.start(ub.Dictionary(d_sae=F, activation=ub.BatchTopK(k=K)), D, [0])
    for format in ("saelens", "dictionary_learning", "gemma_scope"):
        path = export(stack, format, tmp_path / format).path
        same(run(stack, inputs()), run(back(format, path), inputs()))


def test_a_matryoshka_goes_back_to_its_class(tmp_path):
    stack = replace(autoencoder("batchtopk"), metadata={"dictionary_learning": {"group_sizes": [4, 6]}})
    export(stack, "dictionary_learning", tmp_path / "d")
    state = torch.load(tmp_path / "d" / "ae.pt", weights_only=True)
    assert state["group_sizes"].tolist() == [4, 6]
    assert json.loads((tmp_path / "d" / "config.json").read_text())["trainer"]["dict_class"] == "MatryoshkaBatchTopKSAE"
    same(run(stack, inputs()), run(ub.load(tmp_path / "d" / "ae.pt"), inputs()))


def test_a_crosscoder_keeps_its_sites_in_saelens_files(tmp_path):
    stack = replace(autoencoder("relu"), sites=torch.tensor([[2, 4]]))
    read = ub.load(export(stack, "saelens", tmp_path / "d").path)
    assert read.sites.tolist() == [[2, 4]]
    torch.testing.assert_close(read.site_norms(), stack.site_norms())


def test_a_conversion_that_does_not_agree_is_refused(tmp_path, monkeypatch):
    """Were a format's writer wrong, nobody would get the files."""
    from unbraid.dictionaries.formats import sparsify

    wrong = sparsify.write_safetensors
    monkeypatch.setattr(sparsify, "write_safetensors", lambda path, t: wrong(path, {**t, "b_dec": 1.001 * t["b_dec"]}))
    with pytest.raises(UserError, match=r"cannot be converted exactly: .* differ by .*accepted: 1e-05"):
        export(autoencoder("topk"), "sparsify", tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


def test_a_sample_at_the_edge_of_firing_is_not_compared():
    """Thresholds are kept as logarithms: where rounding decides what fires, nothing is wrong."""
    stack, x = probe(autoencoder("jumprelu"))
    off, reconstruction = run(stack, x)
    off = off.clone()
    off[0] = 0
    margin = torch.full((len(x),), torch.inf, dtype=x.dtype)
    with pytest.raises(UserError, match="cannot be converted"):
        verify(stack, Ran(off, reconstruction, margin), x, "here")
    margin[0] = 0.0
    assert verify(stack, Ran(off, reconstruction, margin), x, "here").samples == len(x) - 1


def test_a_file_that_is_there_is_not_replaced(tmp_path):
    export(autoencoder("relu"), "saelens", tmp_path / "d")
    export(autoencoder("relu"), "saelens", tmp_path / "d")  # the same
    before = (tmp_path / "d" / "sae_weights.safetensors").read_bytes()
    with pytest.raises(UserError, match="exists already and is another"):
        export(autoencoder("topk"), "saelens", tmp_path / "d")
    assert (tmp_path / "d" / "sae_weights.safetensors").read_bytes() == before


def test_layers_for_circuit_tracer_are_put_side_by_side(tmp_path):
    for layer in (0, 1):
        known = {"site": f"blocks.{layer}.hook_resid_mid", "target": f"blocks.{layer}.hook_mlp_out", "model": "gpt2"}
        export(transcoder("relu", wide=D), "circuit_tracer", tmp_path / "all", known)
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == [
        *("config.yaml", "layer_0.safetensors", "layer_1.safetensors")
    ]
    assert (tmp_path / "all" / "config.yaml").read_text().splitlines() == [
        'model_name: "gpt2"',
        'model_kind: "transcoder_set"',
        'feature_input_hook: "hook_resid_mid"',
        'feature_output_hook: "hook_mlp_out"',
        'activation: "relu"',
    ]
    with pytest.raises(UserError, match=r"config.yaml exists already and is another"):
        export(transcoder("jumprelu", wide=D), "circuit_tracer", tmp_path / "all", known)
    with pytest.raises(UserError, match="sites of one block"):
        export(replace(transcoder("relu", wide=D), metadata={}), "circuit_tracer", tmp_path / "none")
    held = load_file(tmp_path / "all" / "layer_0.safetensors")
    assert held["W_enc"].shape == held["W_dec"].shape == (F, D)


def test_densities_go_beside_saelens_weights(tmp_path):
    export(autoencoder("relu"), "saelens", tmp_path / "d", {"densities": [0.1] * F})
    held = load_file(tmp_path / "d" / "sparsity.safetensors")
    np.testing.assert_allclose(held["sparsity"].numpy(), np.full(F, -1.0), atol=1e-6)
    assert "densities" not in (tmp_path / "d" / "cfg.json").read_text()
