"""The configurations and the code that pages show are accepted and run; pages that need a language model's data do not
stand here, and those on adding something have tests of their own."""

import re
import tomllib
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import unbraid as ub
from tests.activations.conftest import tokenizer
from tests.pages import ROOT, code_blocks
from unbraid.config.sweep import combine
from unbraid.pipeline.expand import expand
from unbraid.studies.claims import load_claims

CONFIGURATIONS = [
    pytest.param(block, id=f"{page}-{index}")
    for page in ("baselines", "superposition", "mechanisms", "pipeline", "configuration")
    for index, block in enumerate(code_blocks(f"{page}.md", "toml"))
]


def test_every_page_has_an_example():
    assert len(CONFIGURATIONS) == 6


@pytest.mark.parametrize("block", CONFIGURATIONS)
def test_a_configuration_of_a_page_is_accepted(block: str):
    data = tomllib.loads(block)
    assert len(expand(data, "the page").members) == len(list(combine(data)))


def test_the_code_on_baselines_runs(capsys: pytest.CaptureFixture[str]):
    (code,) = code_blocks("baselines.md", "python")
    exec(code.replace("n_components=512", "n_components=16").replace("2048", "128"), {})
    assert "mmcs" in capsys.readouterr().out


def test_the_code_on_running_from_python_runs(tmp_path, monkeypatch, undrawn, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    (code,) = code_blocks("python.md", "python")
    namespace: dict[str, Any] = {}
    exec(code.replace("200", "10"), namespace)
    assert namespace["again"].run.path == namespace["wider"].run.path
    assert "d_sae 96" in capsys.readouterr().out


def test_the_claim_of_the_page_is_the_one_that_ships(tmp_path):
    text = (ROOT / "docs" / "claims-ledger.md").read_text()
    block = dedent(re.findall(r"   ```toml\n(.*?)   ```", text, re.DOTALL)[0])
    for source in ("head_constraints", "gauge", "mechanisms"):
        (tmp_path / f"{source}.toml").write_text("")
    (tmp_path / "superposition.toml").write_text(block)
    (shown,) = load_claims(tmp_path).values()
    shipped = load_claims()[shown.id]
    assert (shown.statement, shown.study) == (shipped.statement, shipped.study)


def test_the_code_on_running_models_runs_on_a_tiny_one():
    """In place of GPT-2 and a run: random weights, a tokenizer of twenty words."""
    loading, *blocks = code_blocks("splice.md", "python")
    assert "from_pretrained" in loading
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "n_embd": 12, "n_layer": 2, "n_head": 2, "bos_token_id": None, "eos_token_id": None}
    namespace = {
        "torch": torch,
        "ub": ub,
        "model": GPT2LMHeadModel(GPT2Config(**sizes)).eval(),
        "tokenizer": tokenizer(),
        "stack": ub.Stack.start(ub.Dictionary(d_sae=16), 12, [0]),
        "tokens": torch.tensor([[4, 5, 6]]),
    }
    for block in blocks:
        exec(block.replace("max_new_tokens=5", "max_new_tokens=5, pad_token_id=0"), namespace)
    assert namespace["codes"].shape == namespace["effects"].shape == (1, 3, 16)
    assert namespace["written"].shape == (1, 8)
    assert set(namespace["frame"]["layer"]) == {0, 1}


def test_the_code_on_one_model_as_a_module_runs():
    (code,) = [block for block in code_blocks("models.md", "python") if "module(0)" in block]
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    assert namespace["written"].shape == (1, 7)
    assert len(namespace["cache"]) == 2


def test_the_code_on_arrays_runs(tmp_path, monkeypatch, capsys):
    """On fewer rows, and in fewer steps."""
    monkeypatch.chdir(tmp_path)
    np.save("activations.npy", ub.Superposition(dimensions=16, n_features=24).batch(0, 600).x.numpy())
    fitting, estimating = code_blocks("arrays.md", "python")
    assert len([line for line in fitting.splitlines() if line]) <= 10
    namespace: dict[str, Any] = {}
    exec(fitting.replace("steps=1000, batch=1024", "steps=10, batch=64"), namespace)
    exec(estimating.replace("256", "24").replace("steps=200", "steps=5"), namespace)
    assert "explained_variance" in capsys.readouterr().out
    assert ub.load("dictionaries/mine").d_sae == 512
    assert namespace["codes"].shape == (600, 24)
