"""What trips readers of each format, one test a trap; the libraries' own verdict is `make interop`."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import unbraid as ub
from tests.dictionaries.formats.conftest import D, F, K, autoencoder, inputs, run, same, transcoder
from tests.dictionaries.formats.test_golden import GOLDEN
from unbraid.dictionaries.formats.convert import export
from unbraid.errors import UserError

# SAELens

TENSORS = {
    "relu": ("standard", {"W_enc", "b_enc", "W_dec", "b_dec"}),
    "topk": ("topk", {"W_enc", "b_enc", "W_dec", "b_dec"}),
    "jumprelu": ("jumprelu", {"W_enc", "b_enc", "W_dec", "b_dec", "threshold"}),
    "batchtopk": ("jumprelu", {"W_enc", "b_enc", "W_dec", "b_dec", "threshold"}),
    "gated": ("gated", {"W_enc", "W_dec", "b_dec", "b_gate", "b_mag", "r_mag"}),
}


@pytest.mark.parametrize("rule", TENSORS)
def test_saelens_files_have_its_settings_and_no_tensor_but_its_own(rule, tmp_path):
    """An unknown tensor is an error there; without a version or a dtype its loader takes files for older ones."""
    path = export(autoencoder(rule), "saelens", tmp_path / "d", {"site": "blocks.3.hook_resid_post"}).path
    cfg, tensors = json.loads((path / "cfg.json").read_text()), load_file(path / "sae_weights.safetensors")
    architecture, names = TENSORS[rule]
    assert (cfg["architecture"], set(tensors)) == (architecture, names)
    assert cfg["metadata"]["sae_lens_version"].split(".")[0] == "6"
    assert (cfg["dtype"], cfg["normalize_activations"], cfg["apply_b_dec_to_input"]) == ("float32", "none", True)
    assert cfg.get("rescale_acts_by_decoder_norm", False) is False
    assert ("rescale_acts_by_decoder_norm" in cfg) is (rule == "topk")  # whose default is another in training
    assert tensors["W_dec"].shape == (F, D)
    if rule == "batchtopk":
        assert tensors["threshold"].unique().tolist() == pytest.approx([0.4])
        assert cfg["metadata"]["training_architecture"] == "batchtopk"


def test_what_we_know_is_kept_among_saelens_metadata_and_comes_back(tmp_path):
    known = {"model": "gpt2", "site": "blocks.3.hook_resid_post", "context": 64, "run": "first", "seen": 7}
    path = export(autoencoder("relu"), "saelens", tmp_path / "d", known).path
    metadata = json.loads((path / "cfg.json").read_text())["metadata"]
    assert (metadata["model_name"], metadata["hook_name"], metadata["context_size"]) == (
        *("gpt2", "blocks.3.hook_resid_post", 64),
    )
    read = ub.load(path).metadata
    assert {name: read[name] for name in known} == known


def test_a_scale_of_inputs_beside_the_weights_is_folded_exactly():
    """A checkpoint's activation_scaler.json: codes of x are those of the file at 0.37 x, and x̂ is scaled back."""
    plain, scaled = ub.load(GOLDEN / "saelens/standard"), ub.load(GOLDEN / "saelens/standard-scaled_inputs")
    codes, reconstruction = run(plain, 0.37 * inputs())
    same((codes, reconstruction / 0.37), run(scaled, inputs()))


def test_the_file_decides_where_b_dec_is_subtracted():
    """The same weights, with and without: SAELens' two answers, both given."""
    with_it, without = ub.load(GOLDEN / "saelens/standard"), ub.load(GOLDEN / "saelens/standard-b_dec_not_subtracted")
    assert with_it.W_enc.equal(without.W_enc)
    assert not torch.allclose(run(with_it, inputs())[0], run(without, inputs())[0])


@pytest.mark.parametrize(
    "case", ["saelens/jumprelu", "gemma_scope/jumprelu", "dictionary_learning/JumpReluAutoEncoder"]
)
def test_at_the_threshold_nothing_fires(case):
    """The comparison is strict; a threshold as float32's logarithm still stands where the file's did."""
    folder = GOLDEN / case
    stack = ub.load(folder / "ae.pt" if "learning" in case else folder)
    assert stack.threshold is not None
    below, above = stack.threshold * (1 - 1e-5), stack.threshold * (1 + 1e-5)
    for pre, fires in ((below, False), (above, True)):
        bias = pre - stack.pre_activations(torch.zeros(1, D))[:, 0] + stack.encoder_bias
        moved = stack.with_parameters({"encoder_bias": bias})
        assert bool((moved.encode(torch.zeros(1, D)).to_dense()[0] > 0).all()) is fires


# dictionary_learning


def test_only_the_class_tells_top_k_from_batch_top_k(tmp_path):
    folder = shutil.copytree(GOLDEN / "dictionary_learning/BatchTopKSAE", tmp_path / "d")
    config = json.loads((folder / "config.json").read_text())
    config["trainer"]["dict_class"] = "AutoEncoderTopK"
    (folder / "config.json").write_text(json.dumps(config))
    assert type(ub.load(folder / "ae.pt").activation).__name__ == "TopK"
    assert type(ub.load(GOLDEN / "dictionary_learning/BatchTopKSAE/ae.pt").activation).__name__ == "BatchTopK"


def test_its_files_are_as_its_readers_want_them(tmp_path):
    known = {"model": "gpt2", "site": "blocks.3.hook_resid_post", "context": 64}
    path = export(autoencoder("batchtopk"), "dictionary_learning", tmp_path / "d", known).path
    state = torch.load(path / "ae.pt", weights_only=True)
    assert (state["k"].dtype, state["threshold"].dtype, state["k"].shape) == (torch.int32, torch.float32, ())
    assert (state["encoder.weight"].shape, state["decoder.weight"].shape) == ((F, D), (D, F))
    config = json.loads((path / "config.json").read_text())
    trainer = config["trainer"]
    assert (trainer["dict_class"], trainer["layer"], trainer["lm_name"]) == ("BatchTopKSAE", 3, "gpt2")
    assert (trainer["activation_dim"], trainer["dict_size"], trainer["k"]) == (D, F, K)
    assert config["buffer"]["ctx_len"] == 64


def test_its_jump_relu_subtracts_nothing(tmp_path):
    stack = autoencoder("jumprelu")
    path = export(stack, "dictionary_learning", tmp_path / "d").path
    state = torch.load(path / "ae.pt", weights_only=True)
    assert not torch.allclose(state["b_enc"], stack.encoder_bias[0])
    pre = inputs() @ state["W_enc"] + state["b_enc"]
    same([stack.pre_activations(inputs())[0]], [pre])


# sparsify


def test_its_decoder_is_features_by_dimensions(tmp_path):
    """As its encoder's weight is; a transcoder subtracts nothing."""
    path = export(autoencoder("topk"), "sparsify", tmp_path / "d").path
    assert load_file(path / "sae.safetensors")["W_dec"].shape == (F, D)
    assert json.loads((path / "cfg.json").read_text())["transcode"] is False
    path = export(transcoder("topk", wide=D), "sparsify", tmp_path / "t").path
    cfg, tensors = json.loads((path / "cfg.json").read_text()), load_file(path / "sae.safetensors")
    assert (cfg["transcode"], cfg["k"], cfg["num_latents"], cfg["d_in"]) == (True, K, F, D)
    pre = inputs() @ tensors["encoder.weight"].T + tensors["encoder.bias"]
    same([transcoder("topk", wide=D).pre_activations(inputs())[0]], [pre])


@pytest.mark.parametrize("case", ["topk", "topk-free_rows", "topk-skip", "transcode", "transcode-skip"])
def test_its_files_go_through_us_and_back(case, tmp_path):
    read = ub.load(GOLDEN / "sparsify" / case)
    again = ub.load(export(read, "sparsify", tmp_path / "d").path)
    before, after = (
        json.loads((path / "cfg.json").read_text()) for path in (GOLDEN / "sparsify" / case, tmp_path / "d")
    )
    assert {name: before[name] for name in ("transcode", "skip_connection", "k")} == {
        name: after[name] for name in ("transcode", "skip_connection", "k")
    }
    same(run(read, inputs()), run(again, inputs()))


# Gemma Scope


def test_names_with_a_small_letter_are_the_same(tmp_path):
    held = dict(np.load(GOLDEN / "gemma_scope/jumprelu/params.npz"))
    np.savez(tmp_path / "params.npz", **{name.replace("W_", "w_"): array for name, array in held.items()})
    same(run(ub.load(GOLDEN / "gemma_scope/jumprelu"), inputs()), run(ub.load(tmp_path), inputs()))


# OpenAI


def test_openai_s_top_k_is_refused_with_the_reason(tmp_path):
    state = torch.load(GOLDEN / "openai/ReLU/autoencoder.pt", weights_only=True)
    torch.save({**state, "activation": "TopK", "activation_state_dict": {"k": 3}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match="each input is normalized by its own mean and deviation"):
        ub.load(tmp_path / "a.pt")


def test_openai_s_activation_is_relu_where_none_is_named(tmp_path):
    state = torch.load(GOLDEN / "openai/ReLU/autoencoder.pt", weights_only=True)
    torch.save({name: value for name, value in state.items() if name != "activation"}, tmp_path / "a.pt")
    same(run(ub.load(GOLDEN / "openai/ReLU/autoencoder.pt"), inputs()), run(ub.load(tmp_path / "a.pt"), inputs()))


# Llama Scope


@pytest.mark.parametrize("by_norm", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_llama_scope_step_by_step(by_norm, bias, tmp_path):
    """Rows of free lengths and other lengths of targets: its own steps, one after the other.

    Inputs and targets in units of their average length; the threshold holds for pre-activations times the length of
    what they write, in the model's units (`transform_to_unit_decoder_norm`).
    """
    g = torch.Generator().manual_seed(0)
    encoder, decoder = torch.randn(F, D, generator=g), torch.randn(D, F, generator=g)
    e, b, theta, norm_in, norm_out = torch.randn(F, generator=g), torch.randn(D, generator=g), 0.4, 5.5, 3.0
    tensors = {"encoder.weight": encoder, "encoder.bias": e, "decoder.weight": decoder}
    (tmp_path / "checkpoints").mkdir()
    save_file(tensors | ({"decoder.bias": b} if bias else {}), tmp_path / "checkpoints/final.safetensors")
    settings = {"d_model": D, "act_fn": "jumprelu", "jump_relu_threshold": theta, "norm_activation": "dataset-wise"}
    settings |= {"dataset_average_activation_norm": {"in": norm_in, "out": norm_out}, "use_decoder_bias": bias}
    settings |= {"hook_point_in": "blocks.3.ln2.hook_normalized", "hook_point_out": "blocks.3.hook_mlp_out"}
    (tmp_path / "hyperparams.json").write_text(json.dumps({**settings, "sparsity_include_decoder_norm": by_norm}))
    s, t, x = math.sqrt(D) / norm_in, math.sqrt(D) / norm_out, inputs()
    # standardize_parameters_of_dataset_norm: what takes and gives the model's units
    e1, w1, b1 = e / s, decoder * s / t, (b / t if bias else torch.zeros(D))
    lengths = w1.norm(dim=0) if by_norm else torch.ones(F)
    pre = (x @ encoder.T + e1) * lengths
    codes = pre.relu() * (pre > theta)
    stack = ub.load(tmp_path)
    assert stack.is_transcoder
    assert (stack.metadata["site"], stack.metadata["target"]) == (settings["hook_point_in"], settings["hook_point_out"])
    same((codes, codes / lengths @ w1.T + b1), run(stack, x))
