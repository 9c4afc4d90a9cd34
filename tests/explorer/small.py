"""Small real runs for the tests of the explorer's pages, made once a process, and a client that has the token."""

import atexit
import shutil
import tempfile
import tomllib
from functools import cache
from pathlib import Path

import torch
from starlette.testclient import TestClient
from transformers import GPT2Config, GPT2LMHeadModel

from tests.activations.conftest import SPECIAL, WORDS, tokenizer
from tests.pipeline.running import create, finish
from unbraid.activations.capture import CaptureConfig, capture
from unbraid.explorer.app import create_app

CONFIGS = Path(__file__).parents[1] / "regression/configs"
PLANTED = """
title = "Planted"
[world]
kind = "superposition"
dimensions = 12
n_features = 16
[dictionary]
d_sae = 20
[training]
steps = 400
batch = 128
learning_rate = 1e-2
[evaluation]
samples = 1024
[mechanisms.sparsity]
weight = 0.1
[tracking]
checks = 5
[sweep]
seed = [0, 1]
"""


@cache
def folder() -> Path:
    """The runs: planted, pipeline, models (with attention), gauge (on a text), captured (of a Hugging Face folder)."""
    made = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    finish(create(made, "planted", PLANTED))
    pipeline = tomllib.loads((CONFIGS / "pipeline.toml").read_text())
    finish(create(made, "pipeline", {**pipeline, "cases": {"l1": {}, "pca": pipeline["cases"]["pca"]}}))
    models = tomllib.loads((CONFIGS / "constraints.toml").read_text())
    finish(create(made, "models", {**models, "sweep": {"seed": [0]}, "cases": {}}))
    gauge = tomllib.loads((CONFIGS / "gauge.toml").read_text())
    finish(create(made, "gauge", {**gauge, "sweep": {"seed": [0]}, "cases": {}}))
    capture_run(made)
    return made


def capture_run(runs: Path) -> None:
    """A run on the activations of a tiny model with random weights: nobody knows its concepts."""
    home = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    torch.manual_seed(0)
    size = len(SPECIAL) + len(WORDS)
    small = GPT2Config(vocab_size=size, n_embd=12, n_layer=2, n_head=2, n_positions=32, initializer_range=0.3)
    GPT2LMHeadModel(small).save_pretrained(home / "model")
    tokenizer().save_pretrained(home / "model")
    text = "the cat sat on the mat\n\nthe big dog ran and saw the small tree\n\n" * 20
    (home / "text.txt").write_text(text)
    site = "blocks.0.hook_resid_post"
    config = CaptureConfig(model=str(home / "model"), text=str(home / "text.txt"), site=site, context=16)
    capture(config, home / "shards")
    data = {
        "world": {"kind": "activations", "path": str(home / "shards")},
        "dictionary": {"d_sae": 24, "activation": {"kind": "topk", "k": 3}},
        "training": {"steps": 40, "batch": 32},
        "evaluation": {"samples": 64},
    }
    finish(create(runs, "captured", data))


def client(runs: Path | None = None) -> TestClient:
    """With the token's cookie already."""
    made = TestClient(create_app(runs or folder(), "token"), base_url="http://127.0.0.1")
    made.get("/static/pages.css?token=token")
    return made
