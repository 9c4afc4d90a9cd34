"""Files of other libraries that are not what they should be: one sentence, nothing run, nothing left behind."""

import json
import pickle
import shutil
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import unbraid as ub
from tests.dictionaries.formats.conftest import autoencoder
from tests.dictionaries.formats.test_golden import GOLDEN
from tests.test_cli import unbraid
from unbraid.dictionaries.formats.convert import export_several
from unbraid.errors import UserError

NAN = float("nan")
SAFETENSORS = {
    "saelens/topk": "sae_weights.safetensors",
    "sparsify/topk": "sae.safetensors",
    "llama_scope/jumprelu": "checkpoints/final.safetensors",
    "gemma_scope/second_release-transcoder-affine": "params.safetensors",
}
LEARNED = "dictionary_learning/BatchTopKSAE"


def refused(path):
    with pytest.raises(UserError) as refusal:
        ub.load(path)
    said = str(refusal.value)
    assert "\n" not in said
    return said


@pytest.fixture
def copy(tmp_path):
    return lambda case: shutil.copytree(GOLDEN / case, tmp_path / "d")


@pytest.mark.parametrize("case", SAFETENSORS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda whole: whole[:200], "is not a whole safetensors file"),
        (lambda whole: b"", "is not a whole safetensors file"),
        (lambda whole: struct.pack("<Q", 1 << 60) + whole[8:], "is not a whole safetensors file"),
        (lambda whole: pickle.dumps([1]), "is not a whole safetensors file"),
    ],
    ids=["cut short", "empty", "huge header", "pickle"],
)
def test_a_file_that_is_no_whole_safetensors_file(case, content, said, copy):
    path = copy(case) / SAFETENSORS[case]
    path.write_bytes(content(path.read_bytes()))
    assert said in refused(path.parent if path.parent.name == "d" else path.parent.parent)


CHANGES = {
    "nan": (lambda t: t * NAN, "is not finite"),
    "float64 beyond float32": (lambda t: t.double() * 1e60, "is not finite"),
    "transposed": (lambda t: t.T.contiguous() if t.ndim == 2 else t, "accepted"),
    "an axis more": (lambda t: t[None].contiguous(), "accepted"),
    "no rows": (lambda t: t[:0].contiguous(), "accepted"),
    "int64": (lambda t: t.long(), "accepted: floating-point numbers"),
    "bool": (lambda t: t > 0, "accepted: floating-point numbers"),
    "complex": (lambda t: t.to(torch.complex64), "accepted: dense real numbers"),
}


@pytest.mark.parametrize("case", SAFETENSORS)
@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_are_no_weights(case, change, copy):
    folder, (changed, said) = copy(case), CHANGES[change]
    path = folder / SAFETENSORS[case]
    save_file({name: changed(tensor) for name, tensor in load_file(path).items()}, path)
    assert said in refused(folder)


@pytest.mark.parametrize("case", SAFETENSORS)
def test_tensors_lacking_and_of_unknown_meaning(case, copy):
    folder = copy(case)
    path = folder / SAFETENSORS[case]
    tensors = load_file(path)
    save_file({**tensors, "more": torch.ones(3)}, path)
    assert "holds 'more' too, of unknown meaning" in refused(folder)
    bias = next(name for name in tensors if name in ("b_enc", "encoder.bias"))
    save_file({name: tensor for name, tensor in tensors.items() if name != bias}, path)
    assert f"the tensor {bias} is not there" in refused(folder)


def test_half_precision_is_read(copy):
    folder = copy("saelens/topk")
    path = folder / "sae_weights.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(path).items()}, path)
    stack = ub.load(folder)
    assert stack.W_enc.dtype == torch.float32
    torch.testing.assert_close(stack.W_enc, ub.load(GOLDEN / "saelens/topk").W_enc, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "[" * 100_000, "\x00"])
@pytest.mark.parametrize(
    ("case", "file"),
    [
        *(("saelens/topk", "cfg.json"), ("sparsify/topk", "cfg.json")),
        *(("llama_scope/jumprelu", "hyperparams.json"), (LEARNED, "config.json")),
    ],
)
def test_settings_that_are_none(case, file, text, copy):
    folder = copy(case)
    (folder / file).write_text(text)
    refused(folder / "ae.pt" if case == LEARNED else folder)


SETTINGS = [
    ("saelens/topk", "architecture", "nope", "accepted: standard, topk"),
    ("saelens/topk", "architecture", ["topk"], "architecture is"),
    ("saelens/topk", "architecture", None, "architecture is"),
    ("saelens/topk", "architecture", "abstopk", "codes may be negative"),
    ("saelens/topk", "architecture", "temporal", "tokens before"),
    ("saelens/topk", "architecture", "matching_pursuit", "found by a search"),
    ("saelens/topk", "architecture", "batchtopk", "a checkpoint of training"),
    ("saelens/topk", "k", 0, "accepted: a whole number from 1 to 10"),
    ("saelens/topk", "k", True, "accepted: a whole number from 1 to 10"),
    ("saelens/topk", "k", "3", "accepted: a whole number from 1 to 10"),
    ("saelens/topk", "k", 11, "accepted: a whole number from 1 to 10"),
    ("saelens/topk", "d_in", 7, "accepted: shape (7, 10)"),
    ("saelens/topk", "d_in", 1 << 70, "accepted: a whole number"),
    ("saelens/topk", "apply_b_dec_to_input", "no", "accepted: true or false"),
    ("saelens/topk", "rescale_acts_by_decoder_norm", "false", "accepted: true or false"),
    ("saelens/topk", "activation_fn", "tanh-relu", "accepted: relu or topk"),
    ("saelens/topk", "normalize_activations", "layer_norm", "by its own length"),
    ("saelens/topk", "normalize_activations", "constant_norm_rescale", "by its own length"),
    ("saelens/topk", "normalize_activations", "covariance_whitening", "a matrix that is not in the file"),
    ("saelens/topk", "normalize_activations", "expected_average_only_in", "a number that is not in the file"),
    ("saelens/topk", "normalize_activations", {"a": 1}, "accepted: 'none'"),
    ("saelens/transcoder", "apply_b_dec_to_input", True, "no transcoder of SAELens does"),
    ("sparsify/topk", "activation", "groupmax", "no rule of ours"),
    ("sparsify/topk", "signed", True, "codes may be negative"),
    ("sparsify/topk", "transcode", "yes", "accepted: true or false"),
    ("sparsify/topk", "multi_topk", 1, "accepted: true or false"),
    ("sparsify/topk", "skip_connection", True, "the tensor W_skip is not there"),
    ("sparsify/topk", "num_latents", 99, "num_latents is 99 and there are 10"),
    ("sparsify/topk", "k", 99, "accepted: a whole number from 1 to 10"),
    ("llama_scope/jumprelu", "act_fn", "topk", "accepted: jumprelu or relu"),
    ("llama_scope/jumprelu", "jump_relu_threshold", -1, "accepted: a number of 0 or more"),
    ("llama_scope/jumprelu", "norm_activation", "token-wise", "which weights cannot do"),
    ("llama_scope/jumprelu", "use_glu_encoder", True, "which weights cannot do"),
    ("llama_scope/jumprelu", "apply_decoder_bias_to_pre_encoder", True, "which weights cannot do"),
    ("llama_scope/jumprelu", "use_decoder_bias", False, "holds 'decoder.bias' too"),
    ("llama_scope/jumprelu", "dataset_average_activation_norm", {"in": 0, "out": 1}, "accepted: the average lengths"),
]


@pytest.mark.parametrize(("case", "name", "value", "said"), SETTINGS)
def test_a_setting_that_cannot_be_read(case, name, value, said, copy):
    folder = copy(case)
    path = next(path for path in (folder / "cfg.json", folder / "hyperparams.json") if path.exists())
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    assert said in refused(folder)


@pytest.mark.parametrize("kind", ["CrossCoder", ["a"], None])
def test_a_class_that_is_not_known(kind, copy):
    folder = copy(LEARNED)
    (folder / "config.json").write_text(json.dumps({"trainer": {"dict_class": kind}}))
    assert "accepted: AutoEncoder, " in refused(folder / "ae.pt")


# PyTorch's files are pickles


class Marks:
    """What a pickle could do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_nothing_in_a_pickle_is_run(write, copy, tmp_path):
    path = copy(LEARNED) / "ae.pt"
    with path.open("wb") as file:
        write({"bias": Marks(tmp_path / "ran")}, file)
    with path.open("rb") as file:
        pickle.load(file) if write is pickle.dump else torch.load(file, weights_only=False)
    assert (tmp_path / "ran").exists()  # it would have
    (tmp_path / "ran").unlink()
    assert "nothing else is unpickled" in refused(path)
    assert not (tmp_path / "ran").exists()


def test_a_npz_of_objects_is_not_unpickled(copy, tmp_path):
    folder = copy("gemma_scope/jumprelu")
    held = dict(np.load(folder / "params.npz"))
    np.savez(folder / "params.npz", **{**held, "b_dec": np.array([Marks(tmp_path / "ran")], dtype=object)})
    assert "accepted: numbers alone" in refused(folder)
    assert not (tmp_path / "ran").exists()


STATES = {
    "a list": lambda state: [*state.values()],
    "numbers for names": lambda state: dict(enumerate(state.values())),
    "k of 0": lambda state: {**state, "k": torch.tensor(0)},
    "k of 99": lambda state: {**state, "k": torch.tensor(99)},
    "k of 2.5": lambda state: {**state, "k": torch.tensor(2.5)},
    "k no tensor": lambda state: {**state, "k": 3},
    "nan": lambda state: {**state, "b_dec": state["b_dec"] * NAN},
    "sparse": lambda state: {**state, "b_dec": state["b_dec"].to_sparse()},
    "without numbers": lambda state: {**state, "b_dec": state["b_dec"].to("meta")},
    "a word": lambda state: {**state, "b_dec": "x"},
}


@pytest.mark.parametrize("change", STATES)
def test_a_state_dict_that_is_none(change, copy):
    path = copy(LEARNED) / "ae.pt"
    torch.save(STATES[change](torch.load(path, weights_only=True)), path)
    assert "accepted" in refused(path)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04"])
def test_a_pt_file_that_is_none(content, copy):
    path = copy(LEARNED) / "ae.pt"
    path.write_bytes(content)
    assert "is not a whole PyTorch file" in refused(path)


def test_a_pickle_is_read_only_if_it_is_named(copy):
    assert "a pickle, which is read only if it is named" in refused(copy(LEARNED))


@pytest.mark.parametrize("case", [*SAFETENSORS, LEARNED, "gemma_scope/jumprelu"])
def test_flipped_bytes_raise_nothing_else(case, copy):
    """Whatever is wrong in a file of weights, it is one sentence; some flips only change a number."""
    folder = copy(case)
    path = folder / SAFETENSORS.get(case, "ae.pt" if case == LEARNED else "params.npz")
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=3):
            damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with suppress(UserError):
            ub.load(path if case == LEARNED else folder)


# Folders


def test_a_folder_with_two_formats_is_not_guessed_at(copy):
    folder = copy("saelens/topk")
    shutil.copy(GOLDEN / "gemma_scope/jumprelu/params.npz", folder)
    assert "holds dictionaries of SAELens and of Gemma Scope" in refused(folder)
    assert ub.load(folder / "sae_weights.safetensors").metadata["source"]["format"] == "saelens"
    assert ub.load(folder / "params.npz").metadata["source"]["format"] == "gemma_scope"
    assert "holds dictionaries of" not in refused(folder / "expected.safetensors")


def test_what_is_no_dictionary(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds nothing, and no dictionary that is known" in refused(tmp_path / "empty")
    (tmp_path / "a.txt").write_text("a")
    assert "is no file of a dictionary" in refused(tmp_path / "a.txt")
    assert "there is no such file or folder" in refused(tmp_path / "none")


# On the command line


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_an_import_that_fails_leaves_nothing(here, copy, capsys):
    folder = copy("saelens/topk")
    (folder / "sae_weights.safetensors").write_bytes(b"")
    for words in (["import", folder, "--as", "a"], ["import", GOLDEN / "saelens/topk", "--as", "../a"]):
        code, out, err = unbraid(capsys, *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert err.startswith("unbraid: ")
    assert list(here.iterdir()) == []


def test_an_export_that_fails_leaves_nothing(here, capsys):
    source = GOLDEN / "saelens/topk"
    for words, said in [
        (["--format", "gemma_scope"], "accepted: jumprelu, batchtopk or relu"),
        (["--format", "nothing"], "there is no format 'nothing'"),
        (["--format", "openai"], "only read from OpenAI's"),
        (["--format", "circuit_tracer"], "accepted: a transcoder"),
        (["--format", "neuronpedia"], "the tokens that features fire on"),
        (["--format", "sparsify", "--member", "3"], "has no dictionary 3"),
        (["--format", "sparsify", "--member", "x"], "is no member"),
    ]:
        code, out, err = unbraid(capsys, "export", source, *words)  # into exports/
        assert (code, out, len(err.splitlines())) == (2, "", 1), err
        assert said in err
    assert list(here.iterdir()) == []


def test_of_several_all_are_exported_or_none(here):
    relu, topk = autoencoder("relu"), autoencoder("topk")
    with pytest.raises(UserError, match="accepted: topk"):
        export_several({"a": (topk, {}), "b": (relu, {})}, "sparsify", here / "a" / "b")
    assert list(here.iterdir()) == []
    written = export_several({"a": (topk, {}), "b": (relu, {})}, "saelens", here / "out")
    assert [one.path for one in written] == [here / "out/a", here / "out/b"]
    assert sorted(path.name for path in (here / "out").iterdir()) == ["a", "b"]


def test_a_name_that_is_taken_is_told_before_anything_is_read(here, capsys):
    assert unbraid(capsys, "import", GOLDEN / "saelens/topk", "--as", "a", "-q")[0] == 0
    code, _, err = unbraid(capsys, "import", "no/such", "--as", "a")
    assert (code, err) == (2, "unbraid: dictionaries/a exists already; accepted: another --as\n")
    code, _, err = unbraid(capsys, "import", "no/such", "--as", ".a")
    assert (code, "--as '.a' is not a name for a dictionary" in err) == (2, True)
