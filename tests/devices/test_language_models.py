"""A Hugging Face model on a device: captured and spliced as on the CPU."""

import pytest
import torch

from tests.activations.conftest import small, tokenizer
from unbraid.activations.capture import CaptureConfig, capture
from unbraid.activations.huggingface import load_model
from unbraid.activations.sites import find_site
from unbraid.devices import Hardware
from unbraid.dictionaries import Dictionary, Relu, Stack, TopK
from unbraid.errors import UserError
from unbraid.evaluation.language_model.sae import SAE
from unbraid.evaluation.language_model.splicing import score_reconstructions
from unbraid.evaluation.splice import splice

WIDTH = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models") / "llama"
    small("llama").save_pretrained(made)
    tokenizer().save_pretrained(made)
    return made


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(["the cat sat on the mat and then the dog ran", "a big dog saw a small tree"] * 6))
    return path


SITE = "blocks.1.hook_resid_post"


def rows(folder, text, out, **hardware):
    shards = capture(CaptureConfig(model=str(folder), text=str(text), site=SITE, tokens=64), out, **hardware)
    return shards, torch.from_numpy(shards.shard(0)["activations"].copy())


def test_what_is_captured_is_what_the_cpu_captures(folder, text, tmp_path, device):
    _, here = rows(folder, text, tmp_path / "here")
    _, there = rows(folder, text, tmp_path / "there", device=device)
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-5)


def test_another_precision_is_said_and_not_gone_on_with(folder, text, tmp_path):
    shards, narrow = rows(folder, text, tmp_path / "narrow", precision="bfloat16")
    _, plain = rows(folder, text, tmp_path / "plain")
    assert shards.manifest.origin.made_by == ("cpu", "bfloat16")
    assert not torch.equal(narrow, plain)
    torch.testing.assert_close(narrow, plain, rtol=0.05, atol=0.05)
    with pytest.raises(UserError, match=r"made_by|holds"):
        rows(folder, text, tmp_path / "narrow")


def saes(device):
    rules = {"relu": Relu(), "topk": TopK(k=4)}
    made = {name: Stack.start(Dictionary(d_sae=24, activation=rule), WIDTH, [0]) for name, rule in rules.items()}
    return {name: SAE(stack.to(device)) for name, stack in made.items()}


def test_loss_recovered_is_the_cpus(folder, text, device):
    from unbraid.activations.text import cut_windows, read_documents

    found = []
    for name in ("cpu", device):
        model = load_model(folder, Hardware(name))
        windows = list(cut_windows(model, read_documents(text), 16, 64))
        found.append(score_reconstructions(model, find_site(model, SITE), windows, saes(name)))
    for name, scores in found[0].items():
        for score, (value, _) in scores.items():
            assert found[1][name][score][0] == pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True), (name, score)


def test_a_spliced_model_runs_there(folder, device):
    tokens = torch.tensor([[1, 4, 5, 6]])
    logits = []
    for name in ("cpu", device):
        model = load_model(folder, Hardware(name)).model
        with torch.no_grad(), splice(model, saes(name)["topk"].stack, SITE) as spliced:
            spliced.ablate(0)
            logits.append(model(tokens.to(name)).logits.cpu())
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-5)
