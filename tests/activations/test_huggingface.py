"""A model is loaded from its folder ready to run, or one sentence says why not."""

import shutil

import pytest
import torch

from unbraid.activations.huggingface import load_model
from unbraid.errors import UserError


def test_causal_and_encoder_models_are_told_apart(llama, gpt2, bert):
    assert (llama.is_causal, gpt2.is_causal, bert.is_causal) == (True, True, False)
    assert llama.context == gpt2.context == bert.context == 32


def test_a_model_comes_ready_to_run(folders):
    model = load_model(str(folders["llama"])).model
    assert not model.training
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in model.parameters())


def test_a_folder_without_weights_is_refused(folders, tmp_path):
    shutil.copy(folders["llama"] / "config.json", tmp_path)
    with pytest.raises(UserError, match="is a model without weights"):
        load_model(tmp_path)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"it has no config.json"):
        load_model(tmp_path)
    (tmp_path / "some.txt").write_text("words")
    with pytest.raises(UserError, match="is a file"):
        load_model(tmp_path / "some.txt")


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_folder_is_refused(folders, tmp_path, damaged):
    folder = shutil.copytree(folders["llama"], tmp_path / "damaged")
    (folder / damaged).write_bytes(b"{ not")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_model(folder)


@pytest.mark.parametrize("name", ["no-such-model-anywhere", "someone/no-such-model", "not a name at all!"])
def test_an_unknown_name_is_refused(name, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="there is no folder"):
        load_model(name)
